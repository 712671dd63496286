"""Tests of raise-opset."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.legalize.tools.opset import obstacle
from support.asserts import context, read, run_pass, same_numbers
from support.builders import Net

NAME = "raise-opset"


def image(opset: int) -> Net:
    return Net(opset=opset, x=(1, 4, 8, 8))


def resized(opset: int, op: str, scales: list[float], mode: str = "nearest") -> Net:
    """Upsample-9 or Resize-10 by these scales."""
    net = image(opset)
    return net.op(op, "x", net.constant(scales), mode=mode, name="resize")


def branched() -> Net:
    """Opset 9 with a Clip behind a Conv, both outputs of the model read."""
    return image(9).conv(weight=(4, 4, 3, 3)).op("Clip", min=0.0, max=6.0, name="clip").op("Neg")


CONVERTED = {
    "clip-6": (lambda: branched().model(), "Clip"),
    "unsqueeze-11": (lambda: image(11).op("Unsqueeze", axes=[0]).model(), "Unsqueeze"),
    "slice-9": (lambda: image(9).op("Slice", starts=[1], ends=[7], axes=[2]).model(), "Slice"),
    "softmax-9": (lambda: image(9).op("Softmax").model(), "Softmax"),
    "softmax-11, axis 1": (lambda: image(11).op("Softmax", axis=1).model(), "Softmax"),
    "log softmax-7, axis 2": (lambda: image(7).op("LogSoftmax", axis=2).model(), "LogSoftmax"),
    "upsample-9": (lambda: resized(9, "Upsample", [1.0, 1.0, 2.0, 2.0]).model(), "Resize"),
    "upsample-9 by 3": (lambda: resized(9, "Upsample", [1.0, 1.0, 3.0, 3.0]).model(), "Resize"),
    "upsample-9 linear": (
        lambda: resized(9, "Upsample", [1.0, 1.0, 2.0, 2.0], "linear").model(),
        "Resize",
    ),
    "upsample-7": (
        lambda: image(7).op("Upsample", scales=[1.0, 1.0, 2.0, 2.0], mode="linear").model(),
        "Resize",
    ),
    "resize-10 linear": (
        lambda: resized(10, "Resize", [1.0, 1.0, 1.5, 1.5], "linear").model(),
        "Resize",
    ),
    "resize-10 down": (lambda: resized(10, "Resize", [1.0, 1.0, 0.6, 0.6]).model(), "Resize"),
    "pad-2": (lambda: image(10).op("Pad", pads=[0, 0, 1, 1, 0, 0, 1, 1]).model(), "Pad"),
    "batchnormalization-7": (
        lambda: image(7).batchnorm(4, spatial=1).model(),
        "BatchNormalization",
    ),
    "dropout-7": (lambda: image(7).op("Relu").op("Dropout", ratio=0.3).model(), "Dropout"),
    "reducesum-11": (lambda: image(11).op("ReduceSum", axes=[2, 3]).model(), "ReduceSum"),
}
UNCHANGED = {
    "batchnormalization-9": lambda: image(9).batchnorm(4).model(),
    "conv-7": lambda: image(7).conv(weight=(4, 4, 3, 3)).op("Relu").model(),
    "relu-13": lambda: image(13).op("Relu").model(),
}
FIRES = [*(build for build, _ in CONVERTED.values()), *UNCHANGED.values()]
SILENT = [
    lambda: image(14).op("Relu").model(),
    lambda: image(17).conv(weight=(4, 4, 3, 3)).model(),
    lambda: resized(10, "Resize", [1.0, 1.0, 2.0, 0.5]).model(),
]


@pytest.mark.parametrize(("build", "op"), CONVERTED.values(), ids=list(CONVERTED))
def test_what_changed_its_form(build, op):
    """A node of another form is converted, measured, and keeps its origin."""
    proto = build()
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 2
    assert model.opset == 14
    assert op in [n.op for n in model.nodes()]
    assert {o for n in model.nodes() for o in model.origin(n)} == {n.name for n in proto.graph.node}
    assert [t.name for t in model.graph.outputs] == [o.name for o in proto.graph.output]
    one, header = ctx.rewrites
    assert one.reference == "onnxruntime"
    assert header.after == "opset 14"
    same_numbers(proto, model)


@pytest.mark.parametrize("build", UNCHANGED.values(), ids=list(UNCHANGED))
def test_what_only_gained_types(build):
    """A node that gained types only stays; the number of the opset changes."""
    proto = build()
    model, ctx = read(proto), context()
    before = [id(n) for n in model.nodes()]
    assert run_pass(NAME, model, ctx) == 1
    assert [id(n) for n in model.nodes()] == before
    same_numbers(proto, model)


def refused(proto) -> tuple[str, str]:
    """The node and reason of a model that stays as it is."""
    model, ctx = read(proto), context()
    before = [(n.op, dict(n.attrs)) for n in model.nodes()]
    assert run_pass(NAME, model, ctx) == 0
    assert model.opset == proto.opset_import[0].version
    assert [(n.op, dict(n.attrs)) for n in model.nodes()] == before
    assert not ctx.rewrites
    (refusal,) = ctx.refusals
    op = next(n.op_type for n in proto.graph.node if n.name == refusal.node)
    reason = refusal.reason.split(": ", 1)[1]
    assert obstacle(model, 14) == f"{op} at {refusal.node!r}: {reason}"
    return refusal.node, refusal.reason


def test_one_obstacle_stops_the_whole():
    """A Clip that could be converted beside it stays too."""
    net = branched()
    net.op("Upsample", net.last, net.constant([1.0, 1.0, 2.0, 0.5]), mode="nearest", name="resize")
    assert refused(net.model()) == (
        "resize",
        "opset 9 -> 14: it grows along one axis and shrinks along another",
    )


def test_scales_computed_at_run_time():
    """Computed scales may enlarge or shrink."""
    net = Net(opset=10, x=(1, 4, 8, 8), s=(4,)).op("Resize", "x", "s", name="resize")
    assert refused(net.model()) == ("resize", "opset 10 -> 14: its scales are not constant")


def test_a_slope_per_channel():
    """PRelu-6 counted its slopes along the channels, PRelu-7 along the last axis."""
    net = image(6)
    net.op("PRelu", "x", net.constant(np.ones(4)), name="prelu")
    assert refused(net.model()) == (
        "prelu",
        "opset 6 -> 14: its slope ran along the channels before opset 7",
    )


def test_the_next_node_is_measured_in_its_own_opset():
    """Two conversions in one model do not disturb each other."""
    net = branched().op("Slice", starts=[1], ends=[3], axes=[2]).op("Clip", min=-1.0)
    proto = net.model()
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 4
    assert [r.reference for r in ctx.rewrites[:3]] == ["onnxruntime"] * 3
    same_numbers(proto, model)


@pytest.mark.parametrize(("attrs", "shape"), [({"axis": 1}, (4, 1, 1)), ({}, (7,))])
def test_broadcasting_by_attribute(attrs, shape):
    """Before opset 7 an operand ran along an axis, or along the last ones."""
    net = Net(opset=6, ir_version=3, x=(1, 3, 9, 9)).conv("x", (4, 3, 3, 3))
    size = 4 if attrs else 7
    model = read(net.op("Add", net.last, net.random(size), broadcast=1, **attrs).model())
    assert run_pass("raise-opset", model)
    (add,) = model.nodes("Add")
    assert add.inputs[1].shape == shape
    assert not add.attrs


def test_broadcasting_of_what_is_not_known():
    """An operand that is no constant cannot be given another shape."""
    net = Net(opset=6, ir_version=3, x=(1, 4, 9, 9), y=(4,))
    model = read(net.op("Add", "x", "y", broadcast=1, axis=1, name="sum").model())
    assert not run_pass("raise-opset", model)
    assert "'sum'" in obstacle(model, 14)
