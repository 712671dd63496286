"""Tests of fuse-batchnorm."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from support.asserts import context, read, refusals, run_pass, same_numbers
from support.builders import Net

NAME = "fuse-batchnorm"
GROUPS = {"op": "ConvTranspose", "group": 2, "strides": [2, 2]}


def convolved(**attrs: object) -> Net:
    """A convolution with four output channels."""
    return Net(x=(1, 4, 8, 8)).conv(weight=(4, 4, 3, 3), **attrs)


def transposed(**attrs: object) -> Net:
    """A transposed convolution with two groups of two output channels."""
    return Net(x=(1, 4, 8, 8)).conv(weight=(4, 2, 3, 3), **GROUPS, **attrs)


def trained(**attrs: object) -> Net:
    """A BatchNormalization in training mode, with its running statistics."""
    net = convolved()
    parameters = [net.random(4, low=0.5, high=1.5) for _ in range(4)]
    attrs = {"training_mode": 1} | attrs
    return net.op("BatchNormalization", net.last, *parameters, name="bn", outputs=3, **attrs)


FIRES = [
    lambda: convolved().batchnorm(4).model(),
    lambda: convolved(bias=False).batchnorm(4, epsilon=0.1).op("Relu").model(),
    lambda: transposed().batchnorm(4).model(),
    lambda: transposed(bias=False, auto_pad="SAME_LOWER").batchnorm(4).model(),
    lambda: Net(opset=9, x=("N", 3, "H", "W")).conv(pads=[1] * 4).batchnorm(4).model(),
]
SILENT = [
    lambda: Net(x=(1, 3, 8, 8)).batchnorm(3).model(),
    lambda: convolved().output().batchnorm(4).output().model(),
    lambda: convolved().op("Relu").batchnorm(4).model(),
]


@pytest.mark.parametrize("build", FIRES)
def test_the_convolution_takes_it_in(build):
    """The convolution gets a bias, the output and both origins."""
    proto = build()
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 1
    conv = model.nodes()[0]
    assert conv.inputs[2].values.shape == (4,)
    assert model.origin(conv) == (proto.graph.node[0].name, proto.graph.node[1].name)
    assert [t.name for t in model.graph.outputs] == [o.name for o in proto.graph.output]
    assert ctx.rewrites[0].max_abs_difference is not None
    same_numbers(proto, model)


def test_the_numbers():
    """``w * scale / sqrt(var + epsilon)`` and ``bias - mean * factor``."""
    net = Net(x=(1, 1, 4, 4))
    net.op("Conv", "x", net.constant(np.full((2, 1, 1, 1), 3.0)))
    rows = ([2.0, 1.0], [10.0, 0.0], [1.0, 5.0], [3.75, 0.0])
    net.op("BatchNormalization", net.last, *map(net.constant, rows), epsilon=0.25)
    model = read(net.model())
    run_pass(NAME, model)
    (conv,) = model.nodes()
    assert conv.inputs[1].values.reshape(-1).tolist() == [3.0, 6.0]
    assert conv.inputs[2].values.tolist() == [9.0, -10.0]


def test_a_second_reader():
    """A second reader of the convolution needs the unfused result."""
    net = convolved(name="conv").batchnorm(4, name="bn").output().op("Neg", "t0").output()
    assert refusals(NAME, net) == [("bn", "something else reads 'conv' too, or it is an output")]


def test_two_normalizations_of_one_convolution():
    """Neither can go."""
    net = convolved(name="conv").batchnorm(4, name="a").output()
    assert len(refusals(NAME, net.batchnorm(4, "t0", name="b").output())) == 2


def test_training_mode():
    """In training mode the statistics come from the batch."""
    assert refusals(NAME, trained()) == [("bn", "it is in training mode")]


def test_statistics_that_are_outputs_of_the_model():
    """A node with statistics as outputs stays in any mode."""
    net = trained(training_mode=0).output("t1", "t1_1")
    assert refusals(NAME, net) == [("bn", "it is in training mode")]


def test_statistics_that_are_not_constant():
    """Computed statistics give no factor."""
    net = Net(x=(1, 3, 8, 8), mean=(4,)).conv()
    names = [net.random(4), net.random(4), "mean", net.random(4, low=1, high=2)]
    net.op("BatchNormalization", net.last, *names, name="bn")
    assert refusals(NAME, net) == [("bn", "its statistics are not constant")]


def test_a_lone_normalization_is_no_near_miss():
    """A lone normalization has no convolution to be fused into."""
    assert refusals(NAME, Net(x=(1, 3, 8, 8)).batchnorm(3)) == []


def test_a_shared_weight_is_copied():
    """The other convolution keeps the old one."""
    net = Net(x=(1, 4, 8, 8))
    weight = net.random(4, 4, 3, 3)
    net.op("Conv", "x", weight).output().op("Conv", "x", weight)
    proto = net.batchnorm(4).output().model()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    same_numbers(proto, model)


def test_statistics_of_other_channels():
    """A model that cannot be run is refused as such, after all passes: they leave it alone."""
    net = convolved(name="conv").batchnorm(3, name="bn")
    reason = "its statistics are not of the 4 channels that it reads"
    assert refusals(NAME, net) == [("bn", reason)]
    net = convolved(name="conv")
    parts = [net.random(size, low=0.5, high=1.5) for size in (4, 4, 3, 4)]
    net.op("BatchNormalization", net.last, *parts, name="bn")
    assert refusals(NAME, net) == [("bn", "its statistics differ in their numbers of channels")]


def test_a_convolution_of_two_types():
    """A model that cannot be run is refused as such: no runtime says what it computes."""
    net = Net(x=(1, 3, 8, 8)).op("Cast", to="whole")
    net.nodes[-1].attribute.append(helper.make_attribute("to", TensorProto.INT8))
    net.conv("whole", name="conv").batchnorm(4, name="bn")
    assert refusals(NAME, net) == [("bn", "input and weights of 'conv' differ in type")]


def test_statistics_of_positions():
    """Before opset 9 every position of a channel could have its own; no convolution has that."""
    net = Net(opset=8, x=(1, 3, 6, 6)).conv()
    given = [net.random(4, 4, 4, low=0.5, high=1.5) for _ in range(4)]
    net.op("BatchNormalization", net.last, *given, spatial=0, name="norm")
    assert refusals(NAME, net) == [("norm", "it has statistics for every position (spatial=0)")]
