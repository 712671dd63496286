"""Softmax against onnxruntime."""

from __future__ import annotations

from hypothesis import given

from npuconv.arithmetic.rescaling import TensorScale
from support.kernels import BOTH, FEW, SCALES, SEEDS, assert_near, computed, parts, runtime, stored


@BOTH
@FEW
@given(x_at=SCALES, seed=SEEDS)
def test_softmax_is_the_runtimes(how, x_at, seed):
    x, y_at = stored(seed, 4, 10), TensorScale(1 / 256, -128)
    theirs = runtime("QLinearSoftmax", [x, *parts(x_at), *parts(y_at)], axis=-1, opset=13)
    assert_near(computed("Softmax", (x,), (x_at, y_at), how, axis=-1), theirs)
