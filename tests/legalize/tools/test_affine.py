"""Tests of factors and offsets that a convolution takes in, by fuse-mul and fuse-add."""

from __future__ import annotations

import numpy as np
import pytest

from support.affine_nets import COLUMN, convolved, fires, second, shared
from support.asserts import context, read, refusals, run_pass, same_numbers
from support.builders import Net

each = pytest.mark.parametrize(("name", "op"), [("fuse-mul", "Mul"), ("fuse-add", "Add")])
FUSED = [("fuse-mul", build) for build in fires("Mul", "Div")]
FUSED += [("fuse-add", build) for build in fires("Add", "Sub")]


@pytest.mark.parametrize(("name", "build"), FUSED)
def test_the_convolution_takes_it_in(name, build):
    """The operator is gone, its output and its origin are the convolution's."""
    proto = build()
    model, ctx = read(proto), context()
    assert run_pass(name, model, ctx) == 1
    assert {n.op for n in model.nodes()} <= {"Conv", "ConvTranspose"}
    assert [t.name for t in model.graph.outputs] == [o.name for o in proto.graph.output]
    conv = model.nodes()[-1]
    assert model.origin(conv)[1:] == (proto.graph.node[-1].name,)
    assert ctx.rewrites[0].reference == "onnxruntime"
    same_numbers(proto, model)


@each
def test_a_shared_weight_is_copied(name, op):
    """The other convolution keeps the old one."""
    proto = shared(op).model()
    model = read(proto)
    run_pass(name, model)
    one, two = model.nodes()
    assert one.inputs[1] is not two.inputs[1]
    same_numbers(proto, model)


@each
def test_a_second_reader(name, op):
    """A second reader of the convolution needs the unfused result."""
    net = second(convolved(name="conv"), op, COLUMN).output()
    net.op("Neg", "t0").output()
    assert refusals(name, net) == [("it", "something else reads 'conv' too, or it is an output")]


@each
def test_an_output_of_the_model(name, op):
    """The user wants the convolution as it was."""
    net = second(convolved(name="conv").output(), op, COLUMN).output()
    assert refusals(name, net) == [("it", "something else reads 'conv' too, or it is an output")]


@each
@pytest.mark.parametrize("shape", [(1, 8, 6), (6,), (1, 1, 1, 1, 4), (4, 1, 1, 1)])
def test_a_constant_that_is_not_per_channel(name, op, shape):
    """One number per channel cannot hold other constants."""
    net = second(Net(x=(1, 3, 8, 8)).conv(), op, np.ones(shape, np.float32))
    if shape == (1, 8, 6):
        net = second(convolved(), op, np.ones((1, 6, 6), np.float32))
        shape = (1, 6, 6)
    assert refusals(name, net) == [("it", f"its constant of shape {shape} is not per channel")]


@each
def test_weights_that_are_not_constant(name, op):
    """Computed weights cannot be changed."""
    net = Net(x=(1, 4, 8, 8), w=(4, 4, 3, 3)).op("Conv", "x", "w", name="conv")
    net = second(net, op, COLUMN)
    assert refusals(name, net) == [("it", "the weights of 'conv' are not constant")]


@each
def test_a_bias_that_is_not_constant(name, op):
    """A computed bias cannot be changed."""
    net = Net(x=(1, 4, 8, 8), b=(4,))
    net.op("Conv", "x", net.random(4, 4, 3, 3), "b", name="conv")
    assert refusals(name, second(net, op, COLUMN)) == [("it", "the bias of 'conv' is not constant")]
