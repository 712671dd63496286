"""How much noise the rounding of each channel makes by itself."""

from __future__ import annotations

import numpy as np
import pytest

from builders import Net
from idle_nets import CHANNELS, LOUD, inverted, pictures
from npuconv.quant.encoding import Encoding
from npuconv.tuning.noise.alone import noise_powers
from npuconv.tuning.noise.channel_powers import ChannelNoise, channel_powers
from npuconv.tuning.noise.gated import Gate, Rounding

SCALES = np.linspace(0.2, 0.3, CHANNELS).astype(np.float32)
STORED = Encoding(SCALES, np.zeros(CHANNELS, np.int32), SCALES.max(), 1)
OUTPUT = Rounding(Gate("first", "output", "made"), STORED)


def feeds(count: int = 2) -> list[dict[str, np.ndarray]]:
    return [{"x": one[None]} for one in pictures(count)]


def test_channels_that_never_meet_add_up():
    """The noise of all of them is that of the tensor."""
    net = Net(x=(1, 3, 12, 12)).conv("x", (CHANNELS, 3, 1, 1), name="first", to="made")
    proto = net.conv("", (CHANNELS, 1, 3, 3), group=CHANNELS).model()
    powers = channel_powers(proto, OUTPUT, [], range(CHANNELS), feeds())
    assert powers.sum() == pytest.approx(noise_powers(proto, [OUTPUT], feeds())[0][0], rel=1e-4)
    assert powers.argmax() > powers.argmin()  # its steps are larger


def test_those_that_are_asked_for():
    """In the order in which they are."""
    every = channel_powers(inverted(), OUTPUT, [], range(CHANNELS), feeds())
    some = channel_powers(inverted(), OUTPUT, [], [5, LOUD], feeds())
    np.testing.assert_allclose(some, every[[5, LOUD]])


def test_rounded_weights_are_noise_of_the_channel_they_make():
    """And of no other."""
    proto = inverted()
    initial = proto.graph.initializer[0]
    weight = np.frombuffer(initial.raw_data, np.float32).reshape(CHANNELS, 3, 3, 3).copy()
    weight[2] *= 1.5
    weights = Rounding(Gate("first", "weights", initial.name), constants={1: weight})
    plain = channel_powers(proto, OUTPUT, [], range(CHANNELS), feeds())
    found = channel_powers(proto, OUTPUT, [weights], range(CHANNELS), feeds())
    assert found[2] > 10 * plain[2]
    rest = [k for k in range(CHANNELS) if k != 2]
    np.testing.assert_allclose(found[rest], plain[rest], rtol=1e-6)


def test_copies_take_three_quarters_of_what_is_spread_over_a_step():
    """Two, a share of a step apart; four leave a sixteenth."""
    noise = ChannelNoise(inverted(), OUTPUT, [], feeds(4))
    one, two, four = (noise.of([LOUD, 5], copies).sum(axis=1) for copies in (1, 2, 4))
    np.testing.assert_allclose(two / one, 1 / 4, rtol=0.25)
    np.testing.assert_allclose(four / one, 1 / 16, rtol=0.4)


def test_copies_bring_nothing_back_that_is_cut_off():
    """A range that is far too narrow loses as much of each."""
    narrow = Encoding(SCALES / 50, np.zeros(CHANNELS, np.int32), SCALES.max() / 50, 1)
    output = Rounding(OUTPUT.gate, narrow)
    noise = ChannelNoise(inverted(), output, [], feeds())
    one, two = (noise.of([LOUD], copies).sum() for copies in (1, 2))
    assert two == pytest.approx(one, rel=0.02)


def test_every_feed_by_itself():
    """The sum of them is what all make."""
    noise = ChannelNoise(inverted(), OUTPUT, [], feeds(3)).of([5, LOUD])
    assert noise.shape == (2, 3)
    some = channel_powers(inverted(), OUTPUT, [], [5, LOUD], feeds(3))
    np.testing.assert_allclose(noise.sum(axis=1), some)


def test_several_at_once():
    """Channels that never meet make together what each makes."""
    net = Net(x=(1, 3, 12, 12)).conv("x", (CHANNELS, 3, 1, 1), name="first", to="made")
    proto = net.conv("", (CHANNELS, 1, 3, 3), group=CHANNELS).model()
    noise = ChannelNoise(proto, OUTPUT, [], feeds())
    both, each = noise.of([[1, 4], [5]]), noise.of([1, 4, 5])
    np.testing.assert_allclose(both[0], each[0] + each[1], rtol=1e-4)
    np.testing.assert_allclose(both[1], each[2], rtol=1e-4)
