"""Ranges that a sample has no part in."""

from __future__ import annotations

import numpy as np
import pytest

from builders import Net
from npuconv.calibration.reaches import Reach
from npuconv.quant.encoding import Encoding
from npuconv.tuning.noise.clipping import Clipping
from npuconv.tuning.noise.left_out import LeftOut, Losses


def left_out(one: Encoding, seen: Reach, foreign: float | list[float] = 0.0) -> LeftOut:
    """Ranges that were made of these samples alone."""
    lows, highs = seen.lows.min(axis=0), seen.highs.max(axis=0)
    return LeftOut(one, seen, lows, highs, np.broadcast_to(foreign, lows.shape))


def encoding(scales, zeros) -> Encoding:
    own = np.float32(scales)
    return Encoding(own, np.int32(zeros), own.max(), 1)


def reach(lows, highs) -> Reach:
    return Reach(np.float32(lows), np.float32(highs))


def test_who_reaches_farthest_is_left_with_what_the_next_one_shows():
    """All others have the whole range; a channel nobody else shows has hardly any."""
    seen = reach([[0, 0]] * 3, [[8, 0], [4, 0], [2, 5]])
    one = left_out(encoding([8 / 255, 5 / 255], [-128, -128]), seen)
    highs = [one.bounds(sample, 1.0)[1].tolist() for sample in range(3)]
    assert highs[0] == pytest.approx([4, 5])
    assert highs[1] == pytest.approx([8, 5])
    assert highs[2] == pytest.approx([8, 5e-4])
    assert not one.bounds(0, 1.0)[0].any()
    assert one.bounds(0, 1.5)[1].tolist() == pytest.approx([6, 7.5])


def test_both_ends_of_a_zero_point_of_0():
    """Either end makes the other, so it is the largest magnitude that counts."""
    seen = reach([[-4, -1], [-1, -2]], [[1, 3], [2, 1]])
    one = left_out(encoding([4 / 127, 3 / 127], [0, 0]), seen)
    low, high = one.bounds(0, 1.0)
    assert high.tolist() == pytest.approx([2, 2])
    assert low.tolist() == pytest.approx([-2 * 128 / 127] * 2)
    assert one.bounds(1, 1.0)[1].tolist() == pytest.approx([4, 3])


def test_ends_apart_where_the_zero_point_is_free():
    """A sample that reaches far up says nothing of what lies below."""
    seen = reach([[-2, 0], [-1, 0]], [[1, 1], [4, 1]])
    one = left_out(encoding([6 / 255, 1 / 255], [-43, -128]), seen)
    (low, high), (lower, higher) = one.bounds(0, 1.0), one.bounds(1, 1.0)
    assert (low[0], high[0]) == pytest.approx((-1, 4), abs=0.03)
    assert (lower[0], higher[0]) == pytest.approx((-2, 1), abs=0.03)


def test_what_a_channel_has_of_its_family_stays():
    """Half of it, in the logarithm."""
    seen = reach([[0, 0]] * 2, [[8, 8], [2, 2]])
    one = left_out(encoding([8 / 255, 8 / 255], [-128] * 2), seen, [0.5, 1.0])
    assert one.bounds(0, 1.0)[1].tolist() == pytest.approx([4, 8])


def test_ranges_that_others_have_made():
    """Samples that are not looked at may reach farther: then no range changes."""
    seen = reach([[0]] * 2, [[3], [1]])
    one = LeftOut(encoding([4 / 255], [-128]), seen, np.zeros(1), np.float32([4]), np.zeros(1))
    assert one.bounds(0, 1.0)[1].tolist() == pytest.approx([4])


def losses(some) -> Losses:
    """Two tensors of the same values, of samples that reach 1, 2 and 5."""
    model = Net(x=(1, 1, 1, 1)).op("Identity", to="a").op("Neg", to="y").model()
    feeds = [{"x": np.full((1, 1, 1, 1), k, np.float32)} for k in (1, 2, 5)]
    one = left_out(encoding([5 / 127], [0]), reach([[0]] * 3, [[1], [2], [5]]))
    clipping = Clipping(model, {"x": 2, "a": 2})
    exact = [clipping.exact(feed) for feed in feeds]
    return Losses(clipping, feeds, exact, {"x": one, "a": one}, [["x"], ["a"], []], some)


def test_losses_of_parts():
    """Only the last sample is cut off, at 2, once however often; larger ranges cut off less."""
    found = losses([0, 1, 2])
    assert found.of([0, [1, 2], [0, 1, 2], 2]).tolist() == [
        pytest.approx(row, abs=1e-5) for row in ([0, 0, 9], [0, 0, 9], [0, 0, 9], [0, 0, 0])
    ]
    assert found.of([0], 2.0)[0].tolist() == pytest.approx([0, 0, 1], abs=1e-5)


def test_some_samples():
    """In the order in which they are asked for."""
    assert losses([2, 0]).of([0])[0].tolist() == pytest.approx([9, 0], abs=1e-5)
