"""Tests of rewrite-reduction-as-pool."""

from __future__ import annotations

import numpy as np
import pytest

from support.asserts import context, read, run_pass, same_numbers
from support.builders import Net

NAME = "rewrite-reduction-as-pool"
X = (2, 3, 4, 5)


def mean(
    axes: list[int] | None,
    *,
    opset: int = 17,
    x: tuple[int | str, ...] = X,
    op: str = "ReduceMean",
    **attrs: int,
) -> Net:
    """A reduction whose axes are an attribute, or since opset 18 an input."""
    net = Net(opset=opset, x=x)
    if axes is None:
        return net.op(op, name="mean", **attrs)
    if opset < 18:
        return net.op(op, axes=axes, name="mean", **attrs)
    return net.op(op, "x", net.constant(np.asarray(axes)), name="mean", **attrs)


def normalized(square: str = "Pow") -> Net:
    """A LayerNormalization over the last two axes, as PyTorch spells it."""
    net = Net(x=X).op("ReduceMean", axes=[-2, -1], name="mean")
    net.op("Sub", "x", net.last, to="centred")
    power = ["centred", net.constant(2.0)] if square == "Pow" else ["centred", "centred"]
    net.op(square, *power).op("ReduceMean", axes=[-2, -1], name="variance")
    net.op("Add", net.last, net.constant(1e-5)).op("Sqrt")
    return net.op("Div", "centred", net.last)


def excited() -> Net:
    """A squeeze-and-excite block: its mean goes back to its input as a factor."""
    net = Net(x=X).op("ReduceMean", axes=[2, 3], name="mean")
    return net.conv(net.last, (3, 3, 1, 1)).op("Sigmoid").op("Mul", "x", "t2")


FIRES = [
    lambda: excited().model(),
    lambda: Net(x=X, y=X).op("Mul", "x", "y").op("ReduceMean", axes=[2, 3]).model(),
    lambda: mean([2, 3]).model(),
    lambda: mean([-1, -2], keepdims=1).model(),
    lambda: mean([3, 2], keepdims=0).model(),
    lambda: mean([2, 3], opset=18).model(),
    lambda: mean([-2, -1], opset=18, keepdims=0).model(),
    lambda: mean([2, 3], x=("N", 3, "H", "W"), keepdims=0).op("Relu").model(),
    lambda: mean([2, 3], opset=11).model(),
    lambda: mean([-1], x=(2, 3, 4), keepdims=0).model(),
    lambda: mean([2, 3], op="ReduceMax").model(),
    lambda: mean([-1], op="ReduceMax", opset=18, x=(2, 3, "T"), keepdims=0).model(),
]
SILENT = [
    lambda: normalized().model(),
    lambda: normalized("Mul").model(),
    lambda: mean([1]).model(),
    lambda: mean([1, 2, 3]).model(),
    lambda: mean([2]).model(),
    lambda: mean([1, 2]).model(),
    lambda: mean(None).model(),
    lambda: mean(None, opset=18, noop_with_empty_axes=1).model(),
    lambda: mean([1], x=(2, 3, 4)).model(),
    lambda: mean([2, 3], op="ReduceMin").model(),
    lambda: mean([2, 3, 4], x=(1, 2, 3, 4, 5)).model(),
    lambda: mean([2, 3], opset=11, keepdims=0).model(),
]


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize(("keepdims", "left"), [(1, []), (0, ["Squeeze"])])
@pytest.mark.parametrize(
    ("op", "pool"), [("ReduceMean", "GlobalAveragePool"), ("ReduceMax", "GlobalMaxPool")]
)
def test_what_it_becomes(op, pool, opset, keepdims, left):
    """The name of the output stays."""
    proto = mean([2, 3], op=op, opset=opset, keepdims=keepdims).model()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    assert [n.op for n in model.nodes()] == [pool, *left]
    assert [model.origin(n) for n in model.nodes()] == [("mean",)] * (1 + len(left))
    same_numbers(proto, model)


def test_axes_that_are_computed():
    """Computed axes are unknown here."""
    net = Net(opset=18, x=X, a=(2,))
    net.inputs[1].type.tensor_type.elem_type = 7
    net.op("ReduceMean", "x", "a", name="mean")
    assert run_pass(NAME, read(net.model())) == 0


def test_another_type():
    """onnxruntime has no pool of integers."""
    net = mean([2, 3])
    net.inputs[0].type.tensor_type.elem_type = 6
    assert run_pass(NAME, read(net.model())) == 0


def test_an_old_opset_without_keepdims():
    """The Squeeze it needs does not exist there."""
    ctx = context()
    assert run_pass(NAME, read(SILENT[-1]()), ctx) == 0
    (refusal,) = ctx.refusals
    assert refusal.node == "mean"
    assert refusal.reason == "opset 11 has no Squeeze that reads its axes"


@pytest.mark.parametrize("square", ["Pow", "Mul"])
def test_a_normalization_stays(square):
    """Its mean and its variance would be rounded to int8 on the device."""
    ctx = context()
    assert run_pass(NAME, read(normalized(square).model()), ctx) == 0
    reason = "it is the mean or the variance of a normalization"
    assert [(r.node, r.reason) for r in ctx.refusals] == [("mean", reason), ("variance", reason)]
