"""The tapped model: a model by the standard, with nothing of it kept longer than needed."""

from __future__ import annotations

import onnx
import pytest

from npuconv.calibration import taps
from support.builders import Net, digits


@pytest.mark.parametrize("opset", [11, 13, 18, 21])
def test_it_is_a_valid_model(opset):
    """By ONNX's own inference, and its outputs are ours alone."""
    model = Net(opset=opset, x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).op("Relu").model()
    tapped = taps.insert_taps(model, ["x", "t1"])
    inferred = onnx.shape_inference.infer_shapes(tapped, check_type=True, strict_mode=True)
    kinds = {o.name: o.type.tensor_type.elem_type for o in inferred.graph.output}
    shapes = [taps.shape_output(k) for k in range(2)]
    assert list(kinds) == [*taps.KINDS, *shapes]
    assert {kinds[name] for name in taps.KINDS} == {onnx.TensorProto.FLOAT}


def test_taps_stand_behind_what_they_watch():
    """So a tensor is read while it is in the cache, and is let go."""
    tapped = taps.insert_taps(digits(), ["x", "t0"])
    made = {name: place for place, node in enumerate(tapped.graph.node) for name in node.output}
    first = min(place for name, place in made.items() if name == "t0")
    reads = [
        place
        for place, node in enumerate(tapped.graph.node)
        if "t0" in node.input and node.output[0].startswith(taps.PREFIX)
    ]
    assert reads == [first + 1, first + 2]
    assert made["npuconv/calibration/shape/0"] < made["t0"]
