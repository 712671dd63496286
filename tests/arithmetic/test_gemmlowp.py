"""Requantization by gemmlowp: against its C++ code, written with Python's integers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from npuconv.arithmetic.gemmlowp import Multipliers, multipliers
from npuconv.errors import ModelError
from support.integer_conv import by_gemmlowp


def quantize_multiplier(factor: float) -> tuple[int, int]:
    """Translate TFLite's QuantizeMultiplier."""
    mantissa, exponent = math.frexp(factor)
    fixed = math.floor(mantissa * 2**31 + 0.5)
    if fixed == 2**31:
        fixed //= 2
        exponent += 1
    return (0, 0) if exponent < -31 else (fixed, exponent)


def truncated(numerator: int, denominator: int) -> int:
    """Divide as C does."""
    quotient = abs(numerator) // denominator
    return quotient if numerator >= 0 else -quotient


def requantized(total: int, multiplier: int, exponent: int) -> int:
    """Translate MultiplyByQuantizedMultiplier with its two roundings."""
    left, right = max(exponent, 0), max(-exponent, 0)
    product = (total << left) * multiplier
    nudge = 2**30 if product >= 0 else 1 - 2**30
    high = truncated(product + nudge, 2**31)
    mask = (1 << right) - 1
    threshold = (mask >> 1) + (1 if high < 0 else 0)
    return (high >> right) + (1 if (high & mask) > threshold else 0)


def test_multipliers_are_those_of_tflite():
    """Scales of all sizes, and one whose mantissa rounds up to the next power of two."""
    rng = np.random.default_rng(1)
    scales = (2.0 ** rng.uniform(-60, 20, 500)).astype(np.float32)
    x, y = np.float32(0.017), np.float32(0.93)
    found = multipliers(x, scales, y)
    wanted = [quantize_multiplier(float(x) * float(w) / float(y)) for w in scales]
    assert list(zip(found.multiplier, found.exponent, strict=True)) == wanted
    assert (found.multiplier == 0).any(), "a factor below 2**-32 is 0"
    one = multipliers(1.0, np.float32(1) - np.float32(2**-24), 1.0)
    assert (int(one.multiplier), int(one.exponent)) == (2**31 - 128, 0)


def test_a_factor_out_of_reach_is_an_error():
    """A factor out of reach is an error, not a silent saturation."""
    with pytest.raises(ModelError, match="gemmlowp"):
        multipliers(1.0, 2.0**30, 1.0)
    with pytest.raises(ModelError, match="gemmlowp"):
        multipliers(3e38, 3e38, 1e-30)


def test_both_roundings():
    """Equal to the C++ code: random sums and factors, both signs, ties, all shifts."""
    rng = np.random.default_rng(2)
    scales = (2.0 ** rng.uniform(-18, 1.5, 64)).astype(np.float32)
    scales[:8] = 2.0 ** -np.arange(8)  # ties at half a step
    factors = multipliers(1.0, scales, 1.0)
    total = rng.integers(-(2**22), 2**22, (1, 64, 40, 5)).astype(np.int32)
    total[:, :, 0] = rng.integers(-300, 300, (1, 64, 5))
    found = by_gemmlowp(total, factors, np.asarray(3, np.int8))
    for channel in range(64):
        pair = int(factors.multiplier[channel]), int(factors.exponent[channel])
        wanted = [requantized(int(t), *pair) + 3 for t in total[0, channel].flat]
        np.testing.assert_array_equal(found[0, channel].flat, np.clip(wanted, -128, 127))


def test_it_differs_from_rounding_once():
    """Half a step below zero: 2 * -0.25 rounds to -1 after the first rounding, and to 0 at once."""
    quarter = Multipliers(np.asarray(2**30), np.asarray(-1))
    assert by_gemmlowp(np.full((1, 1, 1), -1, np.int32), quarter).item() == 0
    assert by_gemmlowp(np.full((1, 1, 1), -2, np.int32), quarter).item() == -1
    assert np.rint(-2 * 0.25) == 0


def test_type_of_the_zero_point():
    """Results have the type of the zero point; a plain number means int8."""
    unit = Multipliers(np.asarray(2**30), np.asarray(1))
    total = np.asarray([[[-5, 300]]], np.int32)
    assert by_gemmlowp(total, unit, np.asarray(10, np.uint8)).tolist() == [[[5, 255]]]
    assert by_gemmlowp(total, unit).tolist() == [[[-5, 127]]]
    assert by_gemmlowp(total, unit).dtype == np.int8
