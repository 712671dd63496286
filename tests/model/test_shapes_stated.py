"""Shapes that a file states of inner tensors: what counts, and what is inferred in their place."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import npuconv
from npuconv.executor import Session
from npuconv.model import query, shapes
from npuconv.model.load import load
from support.builders import Net, images


def with_stated(proto: onnx.ModelProto, **dims: list[int | str | None]) -> onnx.ModelProto:
    """Add shapes of inner tensors."""
    for name, shape in dims.items():
        info = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        proto.graph.value_info.append(info)
    return proto


def inferred(proto: onnx.ModelProto) -> dict[str, tuple[int | str | None, ...] | None]:
    """Return all shapes of inner tensors."""
    model = load(proto)
    shapes.infer(model)
    return {node.outputs[0].name: query.shape(node.outputs[0]) for node in model.nodes()}


@pytest.mark.parametrize("batch", ["N", None])
def test_an_opened_batch_is_open_inside(batch):
    """The extent that an export had before somebody opened it is no longer said anywhere."""
    net = Net(x=(batch, 3, 8, 8)).conv("x", (4, 3, 3, 3), to="c").op("Relu", to="r")
    assert inferred(with_stated(net.model(), c=[1, 4, 6, 6]))["c"] == (batch, 4, 6, 6)


def test_what_cannot_be_inferred_is_taken():
    """A shape that is computed, a foreign operator: there the file knows more."""
    net = Net(x=(1, 3, 8, 8), k=(2,)).op("Cast", "k", to="i")
    net.nodes[-1].attribute.append(helper.make_attribute("to", TensorProto.INT64))
    net.op("Reshape", "x", "i", to="y").op("Thing", domain="com.example", to="z").op("Relu", to="w")
    found = inferred(with_stated(net.model(), y=[3, 64], z=[5, 6]))
    assert (found["y"], found["z"]) == ((3, 64), (5, 6))


def test_another_rank_is_not_taken():
    """Ranks that are inferred win; extents that are open in them stay so."""
    net = Net(x=("N", 3, "H", 8)).op("Relu", to="r").op("Neg")
    assert inferred(with_stated(net.model(), r=[1, 2]))["r"] == ("N", 3, "H", 8)


def test_the_result_runs_for_other_batches():
    """A layer of one axis is reshaped by what its input has, not by what is left of an export."""
    net = Net(x=("N", 4, 9)).conv("x", (4, 4, 3), to="c").op("Relu", to="r").conv("r", (2, 4, 1))
    proto = with_stated(net.model(), c=[1, 4, 7], r=[1, 4, 7])
    made = npuconv.convert(proto, calibration={"x": images(16, 4, 9)}).model
    for batch in (1, 3):
        x = images(batch, 4, 9).astype(np.float32)
        (found,) = Session(made).run({"x": x}).values()
        assert found.shape == (batch, 2, 7)
