"""MatMul of two activations against onnxruntime."""

from __future__ import annotations

from hypothesis import given

from npuconv.arithmetic.rescaling import TensorScale
from support.kernels import BOTH, FEW, SCALES, SEEDS, assert_near, computed, parts, runtime, stored


@BOTH
@FEW
@given(a_at=SCALES, b_at=SCALES, seed=SEEDS)
def test_matmul_is_the_runtimes(how, a_at, b_at, seed):
    a, b, y_at = stored(seed, 2, 3, 8), stored(seed + 1, 2, 8, 4), TensorScale(0.4, 7)
    theirs = runtime("QLinearMatMul", [a, *parts(a_at), b, *parts(b_at), *parts(y_at)], domain="")
    assert_near(computed("MatMul", (a, b), (a_at, b_at, y_at), how), theirs)
