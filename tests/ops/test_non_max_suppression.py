"""NonMaxSuppression in TFLite: the indices of onnxruntime, also of equal scores."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import npuconv
from npuconv.emit.tflite.translate import find_obstacles, translate
from npuconv.errors import ModelError
from npuconv.executor import Session
from support.builders import Net
from support.tflite_files import reference_kernels, stored

LENGTH = 24
CASES = {
    "all": [100, 0.5],
    "scores above a limit": [100, 0.5, 0.3],
    "at most three": [3, 0.5, -0.2],
    "no overlap": [100, 0.0],
    "default overlap": [100],
}


def suppression(limits: list, **attrs) -> Net:
    """Return a NonMaxSuppression of one class with constant limits."""
    net = Net(boxes=(1, LENGTH, 4), scores=(1, 1, LENGTH))
    kinds = (np.int64, np.float32, np.float32)
    constants = [net.constant(kind(limit)) for kind, limit in zip(kinds, limits, strict=False)]
    return net.op("NonMaxSuppression", "boxes", "scores", *constants, **attrs)


def integers(net: Net) -> onnx.ModelProto:
    """Return the model; its output is int64 with an open first extent."""
    model = net.unchecked_model()
    for info in model.graph.output:
        info.type.tensor_type.elem_type = TensorProto.INT64
        info.type.tensor_type.ClearField("shape")
    return model


def feeds(seed: int) -> dict[str, np.ndarray]:
    """Return boxes that overlap, and scores that are often equal."""
    rng = np.random.default_rng(seed)
    center, extents = rng.uniform(0, 1, (2, 1, LENGTH, 2))
    scores = np.round(rng.uniform(-1, 1, (1, 1, LENGTH)), 1)
    boxes = np.concatenate((center - extents / 2, center + extents / 2), axis=-1)
    return {"boxes": boxes.astype(np.float32), "scores": scores.astype(np.float32)}


def check_with_litert(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> None:
    """Compare LiteRT with onnxruntime."""
    translation = translate(model)
    (end,) = translation.outputs
    sources = [stored(source, inputs[source.name]) for source in translation.inputs]
    (result,) = reference_kernels(translation.graph, sources)
    (expected,) = Session(model).run(inputs).values()
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, stored(end, expected))


@pytest.mark.parametrize("name", CASES)
def test_litert_selects_the_same_boxes(name):
    model = integers(suppression(CASES[name]))
    for seed in range(8):
        check_with_litert(model, feeds(seed))


@pytest.mark.parametrize("least", [-1.0, 2.0])
def test_corners_in_any_order(least):
    """With scores above the limit, and with none: then no box is selected."""
    inputs = feeds(1)
    inputs["boxes"] = inputs["boxes"][..., [2, 1, 0, 3]]
    check_with_litert(integers(suppression([9, 0.5, least])), inputs)


@pytest.mark.parametrize("count", [5, 100])
def test_consumers_take_an_open_extent(count):
    """Indices, cut to the first ones, select boxes."""
    net = suppression([100, 0.5])
    ends = [net.constant(np.asarray([value])) for value in (-1, 2**62, 1)]
    net.op("Slice", net.last, *ends, ends[2]).reshape([-1])
    bounds = [net.constant(np.asarray([value])) for value in (0, count)]
    index = net.op("Slice", net.last, *bounds).last
    boxes = net.op("Squeeze", "boxes", bounds[0]).last
    net.op("Gather", boxes, index)
    net.op("Concat", net.last, net.last, axis=1).op("Transpose").op("Identity")
    model = net.unchecked_model()
    model.graph.output[0].type.tensor_type.ClearField("shape")
    check_with_litert(model, feeds(2))


@pytest.mark.parametrize("limits", [[0, 0.5], [9, 1.0], []])
def test_limits_that_tflite_lacks(limits):
    with pytest.raises(ModelError, match="limits"):
        translate(integers(suppression(limits)))


def test_computed_limits_are_refused():
    net = suppression([9, 0.5])
    net.inputs.append(helper.make_tensor_value_info("least", TensorProto.FLOAT, []))
    net.nodes[-1].input.append("least")
    with pytest.raises(ModelError, match="limits"):
        translate(integers(net))


def test_boxes_by_their_center_are_refused():
    with pytest.raises(ModelError, match="corners"):
        translate(integers(suppression([9, 0.5], center_point_box=1)))


def test_several_classes_are_refused():
    net = suppression([9, 0.5])
    net.inputs[1] = helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 2, LENGTH])
    with pytest.raises(ModelError, match="class"):
        translate(integers(net))


@pytest.mark.parametrize("bounds", [(-1, -99, 0, -1), (-2, 99, 0, 1), (0, -1, 0, 1)])
def test_a_slice_that_counts_from_the_end_is_refused(bounds):
    net = suppression([100, 0.5])
    net.op("Slice", net.last, *(net.constant(np.asarray([value])) for value in bounds))
    (obstacle,) = find_obstacles(integers(net))
    assert "extents" in obstacle.problem


def test_operators_that_need_the_extent_are_refused():
    """A reduction; and indices that count in the open extent."""
    net = suppression([100, 0.5]).op("ReduceMax", axes=[0])
    (obstacle,) = find_obstacles(integers(net))
    assert "NonMaxSuppression" in obstacle.problem
    net = suppression([100, 0.5])
    net.op("Gather", net.last, net.constant(np.asarray([0])))
    (obstacle,) = find_obstacles(integers(net))
    assert "open" in obstacle.problem


def test_check_accepts_it_behind_convolutions():
    net = Net(x=(1, 3, 6, 4))
    boxes = net.conv("x", (4, 3, 1, 1)).reshape([1, 24, 4]).last
    scores = net.conv("x", (1, 3, 1, 1)).reshape([1, 1, 24]).last
    limits = [net.constant(np.int64(9)), net.constant(np.float32(0.5))]
    net.op("NonMaxSuppression", boxes, scores, *limits)
    report = npuconv.check(integers(net), "ethos-u55")
    assert report.summary.verdict != "refused"
