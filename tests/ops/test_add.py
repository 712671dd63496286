"""Add, Sub and Mul against onnxruntime and float arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv.arithmetic.rescaling import FLOAT, TensorScale
from support.kernels import (
    BOTH,
    FEW,
    SCALES,
    SEEDS,
    assert_near,
    computed,
    numbers,
    once,
    parts,
    runtime,
    stored,
)


@pytest.mark.parametrize("op", ["Add", "Mul"])
@BOTH
@FEW
@given(a_at=SCALES, b_at=SCALES, y_at=SCALES, seed=SEEDS)
def test_elementwise_is_the_runtimes(op, how, a_at, b_at, y_at, seed):
    """Channels are broadcast, as a gate is."""
    a, b = stored(seed, 2, 3, 4, 4), stored(seed + 1, 2, 3, 1, 1)
    theirs = runtime(f"QLinear{op}", [a, *parts(a_at), b, *parts(b_at), *parts(y_at)])
    assert_near(computed(op, (a, b), (a_at, b_at, y_at), how), theirs)


@BOTH
@FEW
@given(a_at=SCALES, b_at=SCALES, y_at=SCALES, seed=SEEDS)
def test_subtract_is_float_rounded_once(how, a_at, b_at, y_at, seed):
    a, b = stored(seed, 3, 5), stored(seed + 1, 3, 5)
    wanted = once(numbers(a, a_at) - numbers(b, b_at), y_at)
    assert_near(computed("Sub", (a, b), (a_at, b_at, y_at), how), wanted)


@BOTH
@given(seed=SEEDS, up=st.integers(0, 3), down=st.integers(-3, 0))
@FEW
def test_add_with_a_shift_is_exact(how, seed, up, down):
    """Scales that are powers of two leave nothing to approximate: only halves go another way."""
    a, b = stored(seed, 100), stored(seed + 1, 100)
    at = [TensorScale(2.0**up), TensorScale(2.0**down), TensorScale(8.0)]
    exact = (a * 2.0**up + b * 2.0**down) / 8
    away = np.sign(exact) * np.floor(np.abs(exact) + 0.5)
    wanted = np.clip(np.rint(exact) if how is FLOAT else away, -128, 127)
    np.testing.assert_array_equal(computed("Add", (a, b), at, how), wanted)
