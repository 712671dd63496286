"""How much noise the rounding of each channel makes by itself."""

from __future__ import annotations

import numpy as np
import pytest

from builders import Net
from idle_nets import CHANNELS, LOUD, inverted, pictures
from npuconv.quant.encoding import Encoding
from npuconv.tuning.alone import noise_powers
from npuconv.tuning.channel_powers import channel_powers
from npuconv.tuning.gated import Gate, Rounding

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
