"""The device's convolution against the runtime's, and where they must differ."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.arithmetic.device import Layer, accumulate, convolve
from npuconv.arithmetic.requantize import by_float, float_factors
from support.int8_layers import Case, needs_exact_runtime, random_case, run


def on_device(case: Case) -> np.ndarray:
    """What the device makes of a layer's input."""
    factors = float_factors(case.x_scale, case.w_scales, case.y_scale)
    return convolve(
        case.layer, case.x, lambda total: by_float(total, factors, case.y_zero), int(case.x_zero)
    )


@needs_exact_runtime
@pytest.mark.parametrize("first", range(0, 500, 50))
def test_equals_the_runtime(first):
    """Groups, strides, dilations, asymmetric pads, scales of channels, ties: the same integers."""
    for seed in range(first, first + 50):
        case = random_case(seed, y_zero=seed % 7 - 3)
        np.testing.assert_array_equal(on_device(case), run(case.model(), case.x), str(seed))


@needs_exact_runtime
@pytest.mark.parametrize("seed", range(20))
def test_zero_points(seed):
    """Without padding a zero point changes nothing; with it the device fills with another number.

    A 3x3 kernel on a pad of one cell: what differs lies at the edge.
    """
    unpadded = random_case(seed, x_zero=5, pads=[0, 0, 0, 0])
    np.testing.assert_array_equal(on_device(unpadded), run(unpadded.model(), unpadded.x))
    padded = random_case(seed, x_zero=-100, pads=[1, 1, 1, 1])
    ours, theirs = on_device(padded), run(padded.model(), padded.x)
    assert ours.shape == theirs.shape
    assert (ours != theirs).any()


def test_padding_is_the_stored_zero():
    """By hand: one cell 7, zero point 2, weights of 1: 5 in the middle, and -2 for each pad."""
    layer = Layer(np.ones((1, 1, 3, 3), np.int8), None, [1, 1], [1, 1], [1, 1, 1, 1])
    x = np.full((1, 1, 1, 1), 7, np.int8)
    assert accumulate(layer, x).item() == 7
    assert accumulate(layer, x, 2).item() == 5 - 8 * 2


def test_bias_and_zero_point_of_weights():
    """The one is added, the other is subtracted from each weight of its channel."""
    layer = Layer(
        np.full((2, 1, 1, 1), 3, np.int8), np.asarray([10, -10], np.int32), [1, 1], [1, 1], [0] * 4
    )
    x = np.full((1, 1, 1, 1), 4, np.int8)
    assert accumulate(layer, x).reshape(-1).tolist() == [22, 2]
    assert accumulate(layer, x, 0, [1, 3]).reshape(-1).tolist() == [18, -10]


def test_large_sums_are_exact():
    """Beyond what float32 holds: one more, one less, and all that lies between."""
    weight = np.full((1, 4096, 1, 1), 127, np.int8)
    layer = Layer(weight, np.asarray([1], np.int32), [1, 1], [1, 1], [0] * 4)
    x = np.full((1, 4096, 1, 1), 127, np.int8)
    assert accumulate(layer, x).item() == 127 * 127 * 4096 + 1


def test_the_accumulator_has_32_bits():
    """It wraps round, as a register does."""
    layer = Layer(
        np.ones((1, 1, 1, 1), np.int8), np.asarray([2**31 - 1], np.int32), [1, 1], [1, 1], [0] * 4
    )
    assert accumulate(layer, np.ones((1, 1, 1, 1), np.int8)).item() == -(2**31)


def test_one_and_three_axes():
    """As many spatial axes as the kernel has."""
    x = np.arange(6, dtype=np.int8).reshape(1, 1, 6)
    line = Layer(np.ones((1, 1, 2), np.int8), None, [2], [1], [0, 0])
    assert accumulate(line, x).reshape(-1).tolist() == [1, 5, 9]
    cube = Layer(np.ones((1, 1, 2, 2, 2), np.int8), None, [1] * 3, [1] * 3, [0] * 6)
    assert accumulate(cube, np.ones((1, 1, 2, 2, 2), np.int8)).reshape(-1).tolist() == [8]
