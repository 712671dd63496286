"""Tests of replace-experimental-ops."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.model import query
from support.asserts import context, read, run, run_pass, same_numbers
from support.builders import Net

NAME = "replace-experimental-ops"


def model_of(op: str, opset: int = 9, shape: tuple[int, ...] = (1, 3, 8, 8), **attrs: object):
    """Build a model of this operator; exporters declare the shape of its output."""
    proto = Net(opset=opset, x=(1, 3, 8, 8)).op(op, name="it", **attrs).model()
    for extent in shape:
        proto.graph.output[0].type.tensor_type.shape.dim.add(dim_value=extent)
    return proto


FIRES = [
    lambda: model_of("ImageScaler", scale=2.0, bias=[1.0, -1.0, 0.5]),
    lambda: model_of("Affine", alpha=2.0, beta=0.5),
    lambda: model_of("Crop", shape=(1, 3, 5, 7), border=[1, 2, 0, 1]),
    lambda: model_of("Crop", shape=(1, 3, 3, 4), border=[1, 2, 0, 0], scale=[3, 4]),
]
SILENT = [
    lambda: Net(x=(1, 3, 8, 8)).op("Relu").model(),
    lambda: Net(opset=9, x=(1, 3, 8, 8)).op("Slice", starts=[1], ends=[3]).model(),
]


@pytest.mark.parametrize(
    ("build", "ops"),
    [
        (FIRES[0], ["Mul", "Add"]), (FIRES[1], ["Mul", "Add"]),
        (FIRES[2], ["Slice"]), (FIRES[3], ["Slice"]),
    ],
)  # fmt: skip
def test_what_they_become(build, ops):
    """Standard operators of the same numbers and origin."""
    proto = build()
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 1
    assert [n.op for n in model.nodes()] == ops
    assert {model.origin(n) for n in model.nodes()} == {("it",)}
    assert ctx.rewrites[0].reference == "onnxruntime"
    same_numbers(proto, model)


def test_image_scaler_by_hand():
    """``scale * x + bias[c]``."""
    proto = FIRES[0]()
    model = read(proto)
    run_pass(NAME, model)
    factor, offset = (n.inputs[1].values for n in model.nodes())
    assert factor == 2.0
    assert offset.shape == (3, 1, 1)
    assert np.allclose(offset.reshape(-1), [1.0, -1.0, 0.5])
    assert run(proto)[0].shape == (1, 3, 8, 8)


def test_shapes_behind_one_are_known():
    """ONNX's inference stops at an operator it does not know."""
    proto = Net(opset=9, x=(1, 3, 8, 8)).op("Affine").op("Relu").model()
    model = read(proto)
    assert query.static_shape(model.graph.outputs[0]) is None
    run_pass(NAME, model)
    assert query.static_shape(model.graph.outputs[0]) == (1, 3, 8, 8)


def test_slice_of_a_later_opset():
    """Bounds of Slice are inputs since opset 10."""
    model = read(model_of("Crop", 10, (1, 3, 5, 7), border=[1, 2, 0, 1]))
    assert run_pass(NAME, model) == 1
    (node,) = model.nodes()
    assert [t.values.tolist() for t in node.inputs[1:]] == [
        [2, 1],
        [-1, np.iinfo(np.int64).max],
        [2, 3],
    ]


def test_before_broadcasting():
    """Mul and Add of opset 6 do not broadcast, so they stay."""
    model = read(model_of("Affine", 6))
    assert run_pass(NAME, model) == 0
