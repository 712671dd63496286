"""Tests of fuse-add."""

from __future__ import annotations

import numpy as np
import pytest

from support.asserts import context, read, run_pass, same_numbers
from support.builders import Net

NAME = "fuse-add"
GROUPS = {"op": "ConvTranspose", "group": 2, "strides": [2, 2]}


def convolved(**attrs: object) -> Net:
    """A convolution with four output channels."""
    return Net(x=(1, 4, 8, 8)).conv(weight=(4, 4, 3, 3), **attrs)


def transposed(**attrs: object) -> Net:
    """A transposed convolution with two groups of two output channels."""
    return Net(x=(1, 4, 8, 8)).conv(weight=(4, 2, 3, 3), **GROUPS, **attrs)


def second(net: Net, op: str, values: object) -> Net:
    """The operator with the constant as its second operand."""
    return net.op(op, net.last, net.constant(values), name="it")


def first(net: Net, op: str, values: object) -> Net:
    """The operator with the constant as its first operand."""
    return net.op(op, net.constant(values), net.last, name="it")


def shared(op: str) -> Net:
    """Two convolutions with one weight; only one is followed by the operator."""
    net = Net(x=(1, 4, 8, 8))
    weight = net.random(4, 4, 3, 3)
    net.op("Conv", "x", weight, name="one").output()
    return second(net.op("Conv", "x", weight, name="two"), op, COLUMN).output()


COLUMN = np.arange(1, 5, dtype=np.float32).reshape(4, 1, 1)

FIRES = [
    lambda: second(convolved(), "Add", COLUMN).model(),
    lambda: first(convolved(bias=False), "Add", COLUMN[None]).model(),
    lambda: second(convolved(), "Sub", COLUMN).model(),
    lambda: second(convolved(), "Add", 2.0).model(),
    lambda: second(convolved(bias=False), "Sub", [3.0]).model(),
    lambda: second(transposed(), "Add", COLUMN).model(),
    lambda: second(transposed(bias=False, output_shape=[17, 17]), "Add", COLUMN).model(),
    lambda: shared("Add").model(),
    lambda: second(Net(x=("N", 4, "L")).conv(weight=(4, 4, 2)), "Add", COLUMN[..., 0]).model(),
]
SILENT = [
    lambda: first(convolved(), "Sub", COLUMN).model(),
    lambda: second(convolved(), "Add", COLUMN.reshape(4)[:1].repeat(6)).model(),
    lambda: second(Net(x=(1, 4, 8, 8)).op("Relu"), "Add", COLUMN).model(),
    lambda: second(convolved().output(), "Add", COLUMN).output().model(),
]


def refusals(net: Net) -> list[tuple[str, str]]:
    """What the pass says where it must not fire."""
    model, ctx = read(net.model()), context()
    assert run_pass(NAME, model, ctx) == 0
    return [(r.node, r.reason) for r in ctx.refusals]


@pytest.mark.parametrize("build", FIRES)
def test_the_convolution_takes_it_in(build):
    """The operator is gone, its output and its origin are the convolution's."""
    proto = build()
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 1
    assert {n.op for n in model.nodes()} <= {"Conv", "ConvTranspose"}
    assert [t.name for t in model.graph.outputs] == [o.name for o in proto.graph.output]
    conv = model.nodes()[-1]
    assert model.origin(conv)[1:] == (proto.graph.node[-1].name,)
    assert ctx.rewrites[0].reference == "onnxruntime"
    same_numbers(proto, model)


def test_a_shared_weight_is_copied():
    """The other convolution keeps the old one."""
    proto = shared("Add").model()
    model = read(proto)
    run_pass(NAME, model)
    one, two = model.nodes()
    assert one.inputs[1] is not two.inputs[1]
    same_numbers(proto, model)


def test_a_second_reader():
    """What else reads the convolution wants it as it was."""
    net = second(convolved(name="conv"), "Add", COLUMN).output()
    net.op("Neg", "t0").output()
    assert refusals(net) == [("it", "something else reads 'conv' too, or it is an output")]


def test_an_output_of_the_model():
    """The user wants the convolution as it was."""
    net = second(convolved(name="conv").output(), "Add", COLUMN).output()
    assert refusals(net) == [("it", "something else reads 'conv' too, or it is an output")]


@pytest.mark.parametrize("shape", [(1, 8, 6), (6,), (1, 1, 1, 1, 4), (4, 1, 1, 1)])
def test_a_constant_that_is_not_per_channel(shape):
    """It cannot go into one number per channel."""
    net = second(Net(x=(1, 3, 8, 8)).conv(), "Add", np.ones(shape, np.float32))
    if shape == (1, 8, 6):
        net = second(convolved(), "Add", np.ones((1, 6, 6), np.float32))
        shape = (1, 6, 6)
    assert refusals(net) == [("it", f"its constant of shape {shape} is not per channel")]


def test_weights_that_are_not_constant():
    """There is nothing to change."""
    net = Net(x=(1, 4, 8, 8), w=(4, 4, 3, 3)).op("Conv", "x", "w", name="conv")
    net = second(net, "Add", COLUMN)
    assert refusals(net) == [("it", "the weights of 'conv' are not constant")]


def test_a_bias_that_is_not_constant():
    """There is nothing to change."""
    net = Net(x=(1, 4, 8, 8), b=(4,))
    net.op("Conv", "x", net.random(4, 4, 3, 3), "b", name="conv")
    assert refusals(second(net, "Add", COLUMN)) == [("it", "the bias of 'conv' is not constant")]


def test_a_bias_is_made():
    """It is the constant itself."""
    model = read(FIRES[1]())
    run_pass(NAME, model)
    (conv,) = model.nodes()
    assert conv.inputs[2].values.tolist() == [1, 2, 3, 4]
    assert conv.inputs[2].values.dtype == np.float32


def test_an_addition_between_two_convolutions():
    """A residual connection is not a constant."""
    net = Net(x=(1, 4, 8, 8)).conv("x", (4, 4, 3, 3)).conv("x", (4, 4, 3, 3))
    assert refusals(net.op("Add", "t0", "t1")) == []
