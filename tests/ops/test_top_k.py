"""TopK in TFLite: any axis, and the order of equal values."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from npuconv.emit.tflite.translate import translate
from npuconv.errors import ModelError
from npuconv.executor import Session
from support.builders import Net
from support.tflite_files import reference_kernels, stored

SHAPE = (1, 3, 8, 6)


def top(k: object, **attrs):
    """Return a model of a TopK with both outputs."""
    net = Net(x=SHAPE)
    count = net.constant(np.asarray(k, np.int64)) if isinstance(k, list) else str(k)
    net.op("TopK", "x", count, outputs=2, **attrs)
    model = net.output(net.last, f"{net.last}_1").model()
    if not isinstance(k, list):
        model.graph.input.append(helper.make_tensor_value_info(count, TensorProto.INT64, [1]))
    return model


@pytest.mark.parametrize("axis", [-1, 1, 2])
def test_litert_gives_values_and_indices(axis):
    """Of equal values, the lower index comes first."""
    model = top([3], axis=axis)
    x = np.random.default_rng(3).integers(-3, 4, SHAPE).astype(np.float32)
    translation = translate(model)
    results = reference_kernels(translation.graph, [x.transpose(translation.inputs[0].order)])
    expected = Session(model).run({"x": x})
    for end, result in zip(translation.outputs, results, strict=True):
        assert result.dtype == expected[end.name].dtype
        np.testing.assert_array_equal(result, stored(end, expected[end.name]))


@pytest.mark.parametrize("model", [top("k"), top([3], largest=0)])
def test_computed_count_and_smallest_values_are_refused(model):
    with pytest.raises(ModelError, match="TopK"):
        translate(model)
