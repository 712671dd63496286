"""Tests of drop-saturated."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.emit.emission import Emission
from npuconv.model import save
from npuconv.partition.placement import make_plan
from support.asserts import context, read, run, run_pass
from support.builders import Net
from support.plans import prepare, prepared, quantize

NAME = "drop-saturated"


def image() -> Net:
    """A convolution on an image."""
    return Net(x=(1, 3, 8, 8)).conv()


def uneven() -> Net:
    """A convolution whose channels reach very differently far."""
    net = Net(x=(1, 3, 8, 8))
    weight = np.random.default_rng(0).uniform(-0.3, 0.3, (4, 3, 3, 3))
    sizes = np.reshape([1.0, 0.3, 0.05, 0.01], (4, 1, 1, 1))
    return net.op("Conv", "x", net.constant((weight * sizes).astype(np.float32)))


def clipped(low: float = 0.0, high: float = 0.5) -> Net:
    net = image()
    return net.op("Clip", net.last, net.constant(np.float32(low)), net.constant(np.float32(high)))


def stored_zeros_beside() -> Net:
    """A Clip that a padded convolution reads."""
    net = uneven()
    net.op("Clip", net.last, net.constant(np.float32(0)), net.constant(np.float32(6)))
    return net.conv(weight=(4, 4, 3, 3), pads=[1] * 4)


FIRES = [
    lambda: image().op("Relu").model(),
    lambda: image().op("Relu").conv(weight=(4, 4, 3, 3)).model(),
    lambda: clipped().conv(weight=(4, 4, 3, 3)).model(),
    lambda: stored_zeros_beside().model(),
    lambda: image().op("Relu").op("MaxPool", kernel_shape=[2, 2]).op("Sigmoid").model(),
]
SILENT = [
    lambda: image().op("Relu").conv(weight=(4, 4, 3, 3), pads=[1] * 4).model(),
    lambda: image().op("Relu", to="a").op("Neg", "t0").output("a").output("t2").model(),
    lambda: clipped(-0.5).model(),
    lambda: image().op("Sigmoid").op("Relu").conv(weight=(4, 4, 3, 3)).model(),
    lambda: Net(x=(1, 3, 8, 8)).op("Relu").model(),
]


@pytest.mark.parametrize("build", FIRES)
def test_it_fires_once(build):
    """The node is removed, or loses a bound."""
    model, ctx = prepared(build())
    assert run_pass(NAME, model, ctx) == 1
    assert run_pass(NAME, model, ctx) == 0
    gone = [node for node in ctx.emission.plan.passthrough if not node.inputs]
    assert len(gone) + len(model.nodes("Relu", "Clip")) == 1


@pytest.mark.parametrize("build", SILENT)
def test_it_is_silent(build):
    """Stored zeros beside it, values below 0 beside it, a bound of its own, floats."""
    model, ctx = prepared(build())
    assert run_pass(NAME, model, ctx) == 0


@pytest.mark.parametrize("build", FIRES)
def test_what_it_cut_off_is_still_cut_off(build):
    """Saturation cuts off at the lowest and highest integer, within a few steps."""
    model, ctx = read(build()), context()
    quantize(model, ctx)
    assert not model.nodes("Clip")
    (old,), (new,) = run(build()), run(save.to_proto(model))
    assert np.abs(old - new).max() < 0.1 * np.abs(old).max()


def test_the_result_keeps_its_name_and_origin():
    """The convolution makes what the Relu made, in place of both."""
    model, ctx = prepared(FIRES[0]())
    run_pass(NAME, model, ctx)
    (conv,) = model.nodes()
    assert conv.outputs[0].name == "t1"
    assert model.origin(conv) == ("conv0", "relu1")
    assert [o.name for o in save.to_proto(model).graph.output] == ["t1"]


def test_a_clip_with_stored_zeros_beside_it_becomes_a_relu():
    """Its upper bound is where int8 ends, in every channel."""
    model, ctx = prepared(FIRES[3]())
    encoding = ctx.emission.encodings["t1"]
    assert encoding.axis == 1
    assert np.all(127 * encoding.scales.astype(np.float64) <= 6 * (1 + 1e-6))
    run_pass(NAME, model, ctx)
    (relu,) = model.nodes("Relu")
    assert (len(relu.inputs), dict(relu.attrs), ctx.emission.plan.is_passthrough(relu)) == (
        1,
        {},
        True,
    )


def twice(*outputs: str) -> Net:
    """A Relu of a Relu, which both may be outputs of the model."""
    return image().op("Relu", to="r").op("Relu", to="s").op("Sigmoid", to="y").output(*outputs)


@pytest.mark.parametrize("outputs", [("y",), ("r", "y"), ("s", "y"), ("r", "s", "y")])
def test_outputs_of_the_model_keep_their_names(outputs: tuple[str, ...]):
    """A tensor with two names keeps both, joined by a Clip without bounds."""
    proto = twice(*outputs).model()
    model, ctx = prepared(proto)
    assert run_pass(NAME, model, ctx) == 2
    assert run_pass(NAME, model, ctx) == 0
    after = save.to_proto(model)
    assert [o.name for o in after.graph.output] == list(outputs)
    assert [len(n.inputs) for n in model.nodes("Clip")] == [1] * ({"r", "s"} <= set(outputs))
    assert not model.nodes("Relu")


def test_others_that_read_what_the_relu_reads():
    """A pool of what is never below 0: both names are there, and mean the same."""
    net = image().op("Relu", to="r").op("Relu", "t0", to="s").op("Add", "r", "s", to="y")
    model, ctx = prepared(net.model())
    assert run_pass(NAME, model, ctx) == 2
    assert [n.op for n in model.nodes()] == ["Conv", "Add"]
    first, second = model.nodes("Add")[0].inputs
    assert first is second
    assert first.name in ctx.emission.encodings


def test_one_scale_keeps_the_clip():
    """Its upper bound is an integer then, unless int8 ends before it."""
    model, ctx = read(FIRES[3]()), context()
    prepare(model, ctx, {"t0": 0.1, "t1": 0.1})
    assert run_pass(NAME, model, ctx) == 0
    assert len(model.nodes("Clip")) == 1
    prepare(model, ctx, {"t0": 0.01, "t1": 0.01})
    assert run_pass(NAME, model, ctx) == 1
    assert len(model.nodes("Relu")) == 1


def test_without_encodings_nothing_happens():
    """Weights only needs none."""
    model, ctx = read(FIRES[0]()), context()
    assert run_pass(NAME, model, ctx) == 0
    ctx.emission = Emission(make_plan(model, ctx.target))
    assert run_pass(NAME, model, ctx) == 0
