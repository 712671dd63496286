"""AveragePool against onnxruntime and exact means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from npuconv.arithmetic.rescaling import TensorScale
from support.kernels import (
    BOTH,
    FEW,
    SCALES,
    SEEDS,
    SHIFT,
    assert_near,
    computed,
    parts,
    runtime,
    stored,
)


@BOTH
@pytest.mark.parametrize("counts", [False, True])
@FEW
@given(x_at=SCALES, y_at=SCALES, seed=SEEDS)
def test_average_pool_is_the_runtimes(how, counts, x_at, y_at, seed):
    """Padded cells are the number 0, also where the zero point is not 0."""
    x = stored(seed, 1, 2, 7, 6)
    window = {
        "kernel_shape": [3, 2],
        "strides": [2, 1],
        "pads": [1, 1, 1, 0],
        "count_include_pad": int(counts),
    }
    theirs = runtime("QLinearAveragePool", [x, *parts(x_at), *parts(y_at)], **window)
    assert_near(computed("AveragePool", (x,), (x_at, y_at), how, **window), theirs)


@given(seed=SEEDS)
@FEW
def test_pools_of_powers_of_two_are_exact(seed):
    """A shift by 4 with rounding is the mean of 16 cells, halves away from 0."""
    x, at = stored(seed, 1, 3, 8, 8), TensorScale(0.5)
    sums = x.astype(int).reshape(1, 3, 2, 4, 2, 4).sum((3, 5))
    wanted = np.sign(sums) * ((np.abs(sums) + 8) >> 4)
    window = {"kernel_shape": (4, 4), "strides": (4, 4)}
    np.testing.assert_array_equal(computed("AveragePool", (x,), (at, at), SHIFT, **window), wanted)
