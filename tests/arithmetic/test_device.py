"""The device's convolution against the runtime's, and where they must differ."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from npuconv.arithmetic.device import float_factors, shiftable_scales, shifts
from npuconv.errors import ModelError
from support.int8_layers import Case, random_case, run
from support.integer_conv import IntegerConv, accumulate, by_float, by_shift, convolve


def on_device(case: Case) -> np.ndarray:
    """Return the device's result for a layer's input."""
    factors = float_factors(case.x_scale, case.w_scales, case.y_scale)
    return convolve(
        case.layer, case.x, lambda total: by_float(total, factors, case.y_zero), int(case.x_zero)
    )


@pytest.mark.parametrize("first", range(0, 500, 50))
def test_equals_the_runtime(first):
    """Groups, strides, dilations, asymmetric pads, scales of channels, ties: the same integers."""
    for seed in range(first, first + 50):
        case = random_case(seed, y_zero=seed % 7 - 3)
        np.testing.assert_array_equal(on_device(case), run(case.model(), case.x), str(seed))


@pytest.mark.parametrize("seed", range(20))
def test_zero_points(seed):
    """A zero point changes nothing without padding; with it the device fills with another number.

    A 3x3 kernel on a pad of one cell: what differs lies at the edge.
    """
    unpadded = random_case(seed, x_zero=5, pads=[0, 0, 0, 0])
    np.testing.assert_array_equal(on_device(unpadded), run(unpadded.model(), unpadded.x))
    padded = random_case(seed, x_zero=-100, pads=[1, 1, 1, 1])
    ours, theirs = on_device(padded), run(padded.model(), padded.x)
    assert ours.shape == theirs.shape
    assert (ours != theirs).any()


def test_padding_is_the_stored_zero():
    """One cell of 7, zero point 2, weights of 1, by hand: 5 in the middle, -2 for each pad."""
    layer = IntegerConv(np.ones((1, 1, 3, 3), np.int8), None, [1, 1], [1, 1], [1, 1, 1, 1])
    x = np.full((1, 1, 1, 1), 7, np.int8)
    assert accumulate(layer, x).item() == 7
    assert accumulate(layer, x, 2).item() == 5 - 8 * 2


def test_bias_and_zero_point_of_weights():
    """The one is added, the other is subtracted from each weight of its channel."""
    layer = IntegerConv(
        np.full((2, 1, 1, 1), 3, np.int8), np.asarray([10, -10], np.int32), [1, 1], [1, 1], [0] * 4
    )
    x = np.full((1, 1, 1, 1), 4, np.int8)
    assert accumulate(layer, x).reshape(-1).tolist() == [22, 2]
    assert accumulate(layer, x, 0, [1, 3]).reshape(-1).tolist() == [18, -10]


def test_large_sums_are_exact():
    """Beyond what float32 holds: one more, one less, and all that lies between."""
    weight = np.full((1, 4096, 1, 1), 127, np.int8)
    layer = IntegerConv(weight, np.asarray([1], np.int32), [1, 1], [1, 1], [0] * 4)
    x = np.full((1, 4096, 1, 1), 127, np.int8)
    assert accumulate(layer, x).item() == 127 * 127 * 4096 + 1


def test_the_accumulator_has_32_bits():
    """The accumulator wraps round, as a register does."""
    layer = IntegerConv(
        np.ones((1, 1, 1, 1), np.int8), np.asarray([2**31 - 1], np.int32), [1, 1], [1, 1], [0] * 4
    )
    assert accumulate(layer, np.ones((1, 1, 1, 1), np.int8)).item() == -(2**31)


def test_one_and_three_axes():
    """The device takes the spatial axes of the kernel."""
    x = np.arange(6, dtype=np.int8).reshape(1, 1, 6)
    line = IntegerConv(np.ones((1, 1, 2), np.int8), None, [2], [1], [0, 0])
    assert accumulate(line, x).reshape(-1).tolist() == [1, 5, 9]
    cube = IntegerConv(np.ones((1, 1, 2, 2, 2), np.int8), None, [1] * 3, [1] * 3, [0] * 6)
    assert accumulate(cube, np.ones((1, 1, 2, 2, 2), np.int8)).reshape(-1).tolist() == [8]


scales = st.floats(2.0**-14, 2.0, width=32)
sums = st.integers(-(2**31), 2**31 - 1)


def test_factors_are_float32_in_order():
    """The product first, then the quotient, each rounded."""
    x, w, y = np.float32(0.1), np.asarray([0.3, 0.7], np.float32), np.float32(0.9)
    found = float_factors(x, w, y)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, (x * w) / y)


def test_half_goes_to_even():
    """Halves go to even, and values beyond int8 saturate."""
    total = np.asarray([1, 3, 5, -1, -3, 400, -400], np.int32).reshape(1, 1, -1)
    assert by_float(total, np.float32(0.5)).reshape(-1).tolist() == [0, 2, 2, 0, -2, 127, -128]


def test_a_channel_has_its_own_factor():
    """The zero point is added before saturation, in the type it has."""
    total = np.full((1, 2, 1, 1), 10, np.int32)
    found = by_float(total, np.asarray([1, 30], np.float32), np.uint8(3))
    assert found.dtype == np.uint8
    assert found.reshape(-1).tolist() == [13, 255]


@pytest.mark.parametrize(
    ("rounding", "wanted"),
    [
        ("half_away", [1, 2, 3, -1, -2, -3]),
        ("half_up", [1, 2, 3, 0, -1, -2]),
        ("half_even", [0, 2, 2, 0, -2, -2]),
    ],
)
def test_ties(rounding, wanted):
    """Half a step goes the way the device takes."""
    total = np.asarray([1, 3, 5, -1, -3, -5], np.int32).reshape(1, 1, -1)
    assert by_shift(total, 1, 1, rounding=rounding).reshape(-1).tolist() == wanted


@given(sums, st.integers(1, 2**31 - 1), st.integers(0, 62))
def test_shift_is_exact(total, multiplier, shift):
    """The nearest integer to the fraction, whatever the numbers."""
    exact = Fraction(total * multiplier, 2**shift)
    found = by_shift(np.asarray(total).reshape(1, 1, 1), multiplier, shift).item()
    away = int(abs(exact) + Fraction(1, 2)) * (1 if exact >= 0 else -1)
    assert found == min(max(away, -128), 127)


@given(scales, scales, scales, st.sampled_from([8, 12, 16, 20, 31]))
def test_scales_that_a_shift_can_say(x, w, y, bits):
    """The written model describes the integers of the device, and is next to what was asked."""
    first = float_factors(x, w, y)
    assume(first < 2 ** (bits - 1))  # no factor of a layer is anywhere near
    scale = shiftable_scales(x, w, y, bits=bits, max_shift=62)
    assert scale == pytest.approx(w, rel=2.0**-bits + 2.0**-21)
    factor = float_factors(x, scale, y)
    found = shifts(factor, bits=bits)
    assert found.multiplier < 2**bits
    described = found.multiplier * 2.0**-found.shift
    assert factor == pytest.approx(described, rel=2.0**-22)
    if bits <= 20:
        wanted = shifts(first, bits=bits)
        assert described == wanted.multiplier * 2.0**-wanted.shift


def test_all_channels_at_once():
    """Each factor has a multiplier of full length."""
    factors = np.asarray([0.75, 1e-3, 0.5, 2.0**-40], np.float32)
    found = shifts(factors, bits=8)
    assert found.multiplier.tolist() == [192, 131, 128, 128]
    assert found.shift.tolist() == [8, 17, 8, 47]


def test_one_that_rounds_up_to_a_bit_too_many():
    """255.7 of 8 bits becomes 128 and a shift less."""
    found = shifts(np.float32(255.7 / 256), bits=8)
    assert (found.multiplier.item(), found.shift.item()) == (128, 7)


def test_the_shift_has_an_end():
    """Beyond it the multiplier loses bits, and at last all of them."""
    found = shifts(np.float32(0.75 * 2.0**-12), bits=8, max_shift=16)
    assert (found.multiplier.item(), found.shift.item()) == (12, 16)
    with pytest.raises(ModelError, match=r"2\.91e-11.*8 bit.*at most 16"):
        shifts(np.asarray([1.0, 2.0**-35], np.float32), bits=8, max_shift=16)


@pytest.mark.parametrize("factor", [0.0, -1.0, np.inf, np.nan, 256.0])
def test_factors_that_none_can_say(factor):
    """Factors not positive, not finite, or above the largest multiplier are refused."""
    with pytest.raises(ModelError, match="a factor of a layer"):
        shifts(np.float32(factor), bits=8)
