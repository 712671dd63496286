"""Div by constants against float arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from npuconv.arithmetic.rescaling import TensorScale
from npuconv.errors import ModelError
from support.kernels import BOTH, FEW, SCALES, SEEDS, assert_near, computed, numbers, once, stored


@BOTH
@FEW
@given(x_at=SCALES, y_at=SCALES, seed=SEEDS)
def test_divide_is_float_rounded_once(how, x_at, y_at, seed):
    x, divisor = stored(seed, 2, 3, 4), np.asarray([0.5, -3.0, 6.0])[:, None]
    wanted = once(numbers(x, x_at) / divisor, y_at)
    assert_near(computed("Div", (x,), (x_at, y_at), how, divisor=divisor), wanted)


def test_divide_refuses_zero():
    at = TensorScale(1.0)
    with pytest.raises(ModelError, match="divisor is 0"):
        computed("Div", (stored(0, 2),), (at, at), divisor=[1.0, 0.0])
