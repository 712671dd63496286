"""Tests of eliminate-identity."""

from __future__ import annotations

import pytest

from support.asserts import context, read, refusals, run_pass, same_numbers
from support.builders import Net

NAME = "eliminate-identity"
COPY = "it copies an input or a shared tensor to an output of the model"


def shared() -> Net:
    """A tensor that is an output, copied to another."""
    net = Net(x=(1, 3, 8, 8)).op("Relu", to="a").output()
    return net.op("Identity", name="copy", to="b").output()


FIRES = [
    lambda: Net(x=(1, 3, 8, 8)).op("Identity").op("Relu").model(),
    lambda: Net(x=(1, 3, 8, 8)).conv().op("Identity").op("Identity").model(),
    lambda: Net(x=("N", 4)).op("Relu").op("Identity").op("Neg").model(),
    lambda: Net(x=("N", 4)).op("Relu").op("Sum").op("Max").op("Concat", axis=1).op("Neg").model(),
    lambda: Net(x=(1, 3, 8, 8)).pad([0] * 8).conv().model(),
    lambda: Net(x=(1, 3, 8, 8)).op("Relu").pad([0] * 8, None, mode="reflect").model(),
    lambda: Net(opset=10, x=(1, 3, 8, 8)).op("Pad", pads=[0] * 8).op("Relu").model(),
]
SILENT = [
    lambda: Net(x=(1, 4)).op("Identity").model(),
    lambda: shared().model(),
    lambda: Net(x=(1, 4)).op("Relu").model(),
    lambda: Net(x=(1, 4)).op("Sum", "x", "x").op("Neg").model(),
    lambda: Net(x=(1, 3, 8, 8)).pad([0, 0, 1, 0, 0, 0, 0, 0]).op("Relu").model(),
    lambda: Net(x=(1, 3, 8, 8)).pad([0, 0, -1, 0, 0, 0, 1, 0]).op("Relu").model(),
    lambda: Net(x=(1, 3, 8, 8)).pad([0] * 8).model(),
]


def test_a_chain_to_an_output():
    """The convolution makes the output itself; its name and place stay."""
    proto = FIRES[1]()
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 2
    assert [(n.op, model.origin(n)) for n in model.nodes()] == [("Conv", ("conv0",))]
    assert model.nodes()[0].outputs[0] is model.graph.outputs[0]
    assert model.graph.outputs[0].name == proto.graph.output[0].name
    assert [r.node for r in ctx.rewrites] == ["identity1", "identity2"]
    same_numbers(proto, model)


def test_a_chain_from_an_input_to_an_output():
    """One of them must stay."""
    model, ctx = read(Net(x=(1, 4)).op("Identity").op("Identity").model()), context()
    assert run_pass(NAME, model, ctx) == 1
    assert [(n.op, n.inputs[0].name) for n in model.nodes()] == [("Identity", "x")]
    assert [(r.node, r.reason) for r in ctx.refusals] == [("identity1", COPY)]


def test_an_output_copied_to_another():
    """Both names belong to the user."""
    assert refusals(NAME, shared()) == [("copy", COPY)]


def test_other_readers_of_what_becomes_the_output():
    """Other readers read the tensor under its new name."""
    net = Net(x=(1, 3, 8, 8)).op("Relu", to="a").op("Identity", to="y").output()
    proto = net.op("Neg", "a", to="z").output().model()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    assert [(n.op, n.inputs[0].name) for n in model.nodes()] == [("Relu", "x"), ("Neg", "y")]
    same_numbers(proto, model)


def test_two_copies_of_one_tensor_to_two_outputs():
    """One goes, the other has to copy."""
    net = Net(x=(1, 4)).op("Relu", to="a").op("Identity", "a", to="y").output()
    proto = net.op("Identity", "a", to="z").output().model()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    assert [t.name for t in model.graph.outputs] == ["y", "z"]
    same_numbers(proto, model)


def test_a_copy_of_a_constant():
    """Its readers read the constant."""
    net = Net(x=(1, 4))
    net.op("Identity", net.random(1, 4)).op("Add", "x", "t0")
    model, ctx = read(net.model()), context()
    assert run_pass(NAME, model, ctx) == 1
    assert ctx.rewrites[0].max_abs_difference == 0.0
    assert [n.op for n in model.nodes()] == ["Add"]


@pytest.mark.parametrize("build", FIRES[4:])
def test_a_pad_by_nothing(build):
    """No Pad is left; the neighbour keeps its own origin."""
    proto = build()
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 1
    (node,) = model.nodes()
    assert model.origin(node) == (node.name,)
    assert ctx.rewrites[0].max_abs_difference == 0.0
    same_numbers(proto, model)


def test_a_pad_of_computed_amounts():
    """Computed amounts may differ from zero."""
    net = Net(x=(1, 3), y=(4,))
    net.op("Shape", "y").op("Concat", *["t0"] * 4, axis=0).op("Pad", "x", "t1").op("Relu")
    assert run_pass(NAME, read(net.model())) == 0
