"""Requantization with factors out of reach."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.arithmetic.rescaling import Rescaling, TensorScale
from npuconv.arithmetic.whole import WholeArray
from support.kernels import SHIFT, computed, stored


@pytest.mark.parametrize("bits", [8, 16, 31])
def test_a_factor_beyond_all_multipliers_saturates(bits: int):
    """The largest multiplier takes every whole number but 0 out of int8, as the factor would."""
    x, how = np.arange(-128, 128).astype(np.int8), Rescaling("shift", bits=bits)
    for scale in (1e-12, 1e-37, 1e-45):  # the last makes an infinite factor
        coarse, fine = TensorScale(0.1), TensorScale(scale)
        found = how.requantized(WholeArray.from_array(x), coarse, fine).values
        np.testing.assert_array_equal(found, np.where(x < 0, -128, np.where(x > 0, 127, 0)))
        added = computed("Add", (x, np.zeros_like(x)), (coarse, coarse, fine), how)
        np.testing.assert_array_equal(added, found)


def test_a_factor_below_all_multipliers_is_0():
    small, large = TensorScale(1e-30), TensorScale(1.0)
    x = stored(0, 4)
    for scale in (1.0, 1e30):  # the factor of the last is 0 in float32
        np.testing.assert_array_equal(
            SHIFT.requantized(WholeArray.from_array(x), small, TensorScale(scale)).values, 0 * x
        )
    near = Rescaling("shift", max_shift=15)
    np.testing.assert_array_equal(computed("Add", (x, x), (small, large, large), near), x)
