"""Means on int8 against onnxruntime, and indices of the largest and smallest values in TFLite."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from npuconv.emit.tflite.translate import translate
from npuconv.errors import ModelError
from npuconv.executor import Session
from support import tflite_files
from support.builders import Net
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


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [1, -1, 2])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_litert_gives_the_first_index(op, axis, keepdims):
    """Values are often equal."""
    model = Net(x=(1, 3, 8, 6)).op(op, "x", axis=axis, keepdims=keepdims).model()
    x = np.random.default_rng(3).integers(-2, 3, (1, 3, 8, 6)).astype(np.float32)
    translation = translate(model)
    (result,) = tflite_files.reference_kernels(
        translation.graph, [x.transpose(translation.inputs[0].order)]
    )
    (end,), (expected,) = translation.outputs, Session(model).run({"x": x}).values()
    assert result.dtype == np.int64
    np.testing.assert_array_equal(result, tflite_files.stored(end, expected))


def test_last_index_is_refused():
    with pytest.raises(ModelError, match="select_last_index"):
        translate(Net(x=(1, 3, 8, 6)).op("ArgMax", "x", select_last_index=1).model())
