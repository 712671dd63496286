"""GlobalAveragePool and ReduceMean against onnxruntime."""

from __future__ import annotations

import numpy as np
from hypothesis import given

from support.kernels import BOTH, FEW, SCALES, SEEDS, assert_near, computed, parts, runtime, stored


@BOTH
@FEW
@given(x_at=SCALES, y_at=SCALES, seed=SEEDS)
def test_mean_is_the_runtimes_global_pool(how, x_at, y_at, seed):
    x = stored(seed, 2, 3, 7, 5)
    theirs = runtime("QLinearGlobalAveragePool", [x, *parts(x_at), *parts(y_at)])
    ours = computed("GlobalAveragePool", (x,), (x_at, y_at), how)
    assert_near(ours, theirs)
    flat = computed("ReduceMean", (x,), (x_at, y_at), how, axes=[-1, 2], keepdims=0)
    np.testing.assert_array_equal(flat, ours[..., 0, 0])
