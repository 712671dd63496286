"""Tests of rewrite-batchnorm-as-conv."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.config import Options
from npuconv.model import query
from support.asserts import Passes, context, read, run_pass, same_numbers
from support.builders import Net
from support.target_files import chip

NAME = "rewrite-batchnorm-as-conv"
C = 4
SHAPES = [(2, C), (2, C, 7), (2, C, 5, 6), ("N", C, "H", "W")]


def lone(shape: tuple[int | str, ...] = (2, C, 5, 6), **attrs: float) -> Net:
    """A BatchNormalization that follows no convolution."""
    return Net(x=shape).batchnorm(C, name="bn", **attrs)


def scaled(net: Net) -> Net:
    """Build a BatchNormalization with Caffe's Mul and Add behind."""
    net.op("Mul", net.last, net.random(C, 1, 1), name="mul")
    return net.op("Add", net.last, net.random(1, C, 1, 1), name="add")


def flat() -> Net:
    """A matrix, with a factor for each column."""
    net = lone((2, C))
    return net.op("Mul", net.last, net.random(C), name="mul")


def twice() -> Net:
    """Two in a row."""
    return lone().batchnorm(C, name="second")


def normalized() -> Net:
    """Build a BatchNormalization with a normalization of pixels in front."""
    net = Net(x=(1, C, 5, 6))
    net.op("Sub", "x", net.random(C, 1, 1)).op("Div", net.last, net.constant(255.0))
    return net.batchnorm(C)


def training() -> Net:
    """One that updates its statistics."""
    net = Net(x=(2, C, 5, 6))
    names = [net.random(C, low=0.5, high=1.5) for _ in range(4)]
    return net.op("BatchNormalization", "x", *names, outputs=3, training_mode=1, name="bn")


def computed() -> Net:
    """One whose bias is an input."""
    net = Net(x=(2, C, 5, 6), b=(C,))
    names = [net.random(C, low=0.5, high=1.5) for _ in range(3)]
    return net.op("BatchNormalization", "x", names[0], "b", *names[1:], name="bn")


def negative() -> Net:
    """A variance that is none."""
    net = Net(x=(2, C, 5, 6))
    names = [net.random(C) for _ in range(3)] + [net.constant(-np.ones(C))]
    return net.op("BatchNormalization", "x", *names, name="bn")


FIRES = [
    *(lambda shape=shape: lone(shape).model() for shape in SHAPES),
    lambda: lone(epsilon=0.1).op("Relu").model(),
    lambda: scaled(lone()).model(),
    lambda: flat().model(),
    lambda: twice().model(),
    lambda: normalized().model(),
    lambda: Net(x=(1, 1, 5, 6)).batchnorm(1).model(),
    lambda: lone().output("t0").op("Relu").output().model(),
]
SILENT = [
    lambda: lone((1, C, 2, 3, 4)).model(),
    lambda: training().model(),
    lambda: computed().model(),
    lambda: negative().model(),
    lambda: Net(opset=7, x=(2, C, 5, 6)).batchnorm(C, name="bn").model(),
    lambda: Net(opset=11, x=(2, C)).batchnorm(C, name="bn").model(),
]


def test_two_of_different_channels():
    """No runtime computes them: that is the model's fault, and no bug of ours."""
    net = Net(x=(2, "C", 5, 6)).batchnorm(C, name="bn").batchnorm(C + 1, name="second")
    model, ctx = read(net.model()), context()
    assert run_pass(NAME, model, ctx) == 0
    assert {r.reason for r in ctx.refusals} == {
        "its statistics and those beside it differ in their numbers of channels"
    }


def ops(model: object) -> list[str]:
    return [node.op for node in model.nodes()]  # type: ignore[attr-defined]


def reason(proto: object, ctx: Passes | None = None) -> str:
    """Return the refusal of the pass."""
    model, ctx = read(proto), ctx or context()
    assert run_pass(NAME, model, ctx) == 0
    (refusal,) = ctx.refusals
    assert refusal.node == "bn"
    return refusal.reason


@pytest.mark.parametrize(
    ("shape", "left"),
    [
        (SHAPES[0], ["Unsqueeze", "Conv", "Squeeze"]),
        (SHAPES[1], ["Unsqueeze", "Conv", "Squeeze"]),
        (SHAPES[2], ["Conv"]),
        (SHAPES[3], ["Conv"]),
    ],
)
def test_every_rank(shape, left):
    """A depthwise convolution of one cell."""
    proto = lone(shape).model()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    assert ops(model) == left
    (conv,) = model.nodes("Conv")
    assert (conv.attrs["group"], query.shape(conv.inputs[1])) == (C, (C, 1, 1, 1))
    same_numbers(proto, model)


@pytest.mark.parametrize(
    ("net", "names"),
    [
        (scaled(lone()), ("bn", "mul", "add")),
        (twice(), ("bn", "second")),
        (normalized(), ("sub0", "div1", "batchnormalization2")),
    ],
)
def test_a_chain_is_one_convolution(net, names):
    """The convolution has the origins of the whole chain."""
    model, ctx = read(net.model()), context()
    assert run_pass(NAME, model, ctx) == 1
    (conv,) = model.nodes()
    assert conv.op == "Conv"
    assert model.origin(conv) == names
    assert ctx.rewrites[0].after == "depthwise Conv 1x1, 4 channels"
    same_numbers(net.model(), model)


def test_what_is_read_in_between_ends_a_chain():
    """The Mul stays for the affine pass."""
    net = lone()
    net.output("t0")
    proto = scaled(net).output().model()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    assert ops(model) == ["Conv", "Mul", "Add"]
    same_numbers(proto, model)


def test_an_addend_in_another_direction_ends_a_chain():
    """One value for each column is none for each channel."""
    net = lone((2, C, C, C))
    proto = net.op("Add", net.last, net.random(C)).model()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    assert ops(model) == ["Conv", "Add"]
    same_numbers(proto, model)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (SILENT[0], "its input has rank 5"),
        (SILENT[1], "it is in training mode"),
        (SILENT[2], "its statistics are not constant"),
        (SILENT[3], "its variances are negative, zero or not finite"),
        (SILENT[4], "BatchNormalization of opset 7 may be in training mode"),
        (SILENT[5], "opset 11 has no Unsqueeze that reads its axes"),
    ],
)
def test_near_misses(build, text):
    """Near misses say why."""
    assert reason(build()) == text


def test_half_precision_around_single_precision_statistics():
    """The input decides what is computed."""
    net = lone()
    net.inputs[0].type.tensor_type.elem_type = 10
    assert reason(net.model()) == "it computes in float16"


def test_what_the_device_does_not_take():
    """Its own words."""
    ctx = Passes(chip(group={"equals": 1}), Options())
    assert reason(lone().model(), ctx).startswith("group is 4")


def test_only_where_asked_for_and_needed():
    """The pass needs --offload and a target without the operator."""
    listed = chip(also={"operators": {"BatchNormalization": {}, "Conv": {}}})
    for ctx in (context(offload=False), Passes(listed, Options())):
        assert run_pass(NAME, read(lone().model()), ctx) == 0
        assert not ctx.refusals


def test_a_chain_ends_where_the_target_has_the_operator():
    """A Mul that the target lists stays."""
    listed = chip(also={"operators": {"Mul": {}, "Conv": {}}})
    model = read(scaled(lone()).model())
    assert run_pass(NAME, model, Passes(listed, Options())) == 1
    assert ops(model) == ["Conv", "Mul", "Add"]
