"""Tests of pad-on-host."""

from __future__ import annotations

import pytest

from npuconv.model import query
from npuconv.model.core import Model
from npuconv.partition.placement import make_plan
from npuconv.target import Target
from support.asserts import Passes, apply_pass, context, read, same_numbers
from support.builders import Net

NAME = "pad-on-host"
PADS = {"pads": [1, 0, 2, 1]}


def one() -> Net:
    """The input of the model, padded unevenly."""
    return Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), name="conv", **PADS)


def two() -> Net:
    """Both readers pad alike."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), name="a", to="left", **PADS)
    net.conv("x", (2, 3, 3, 3), name="b", to="right", **PADS)
    return net.output("left", "right")


def inner() -> Net:
    """A tensor that the host makes between two convolutions; extents are not known."""
    net = Net(x=("N", 3, "H", "W")).conv("x", (4, 3, 1, 1), name="first", to="made")
    return net.op("Sigmoid", to="x2").conv("", (4, 1, 3, 3), group=4, name="second", **PADS)


def device() -> Net:
    """A tensor that the device makes for itself, and somebody reads without pads."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 1, 1), name="first").op("Relu", to="x2")
    net.conv("x2", (4, 4, 1, 1), name="a", to="left")
    return net.conv("x2", (4, 4, 3, 3), name="b", to="right", **PADS).output("left", "right")


def unlike() -> Net:
    """One reader pads more than the other."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), name="a", to="left", **PADS)
    net.conv("x", (2, 3, 3, 3), name="b", to="right", pads=[1] * 4)
    return net.output("left", "right")


FIRES = [
    lambda: one().model(),
    lambda: two().model(),
    lambda: inner().model(),
    lambda: device().model(),
]
SILENT = [
    lambda: Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).model(),
    lambda: Net(x=(1, 3, 8, 8)).op("Relu").model(),
    lambda: unlike().model(),
]


def padded(proto, target: Target | None = None) -> tuple[Model, Passes, int]:
    """The model after the pass, with all tensors of the host on the list."""
    model, ctx = read(proto), context()
    ctx.target = target or ctx.target
    return model, ctx, again(model, ctx)


def again(model: Model, ctx: Passes, names: tuple[str, ...] = ("x", "x2", "nobody")) -> int:
    """Return the number of firings, on a plan of the model as it is."""
    return apply_pass(NAME, model, ctx, plan=make_plan(model, ctx.target), tensors=set(names))


@pytest.mark.parametrize("example", FIRES)
def test_the_host_pads(example):
    """One Pad for all readers, before them; the numbers stay."""
    model, ctx, fired = padded(example())
    assert fired == 1
    (pad,) = model.nodes("Pad")
    readers = query.consumers(pad.outputs[0])
    assert {tuple(conv.attrs["pads"]) for conv in readers} == {(0, 0, 0, 0)}
    assert query.constant_input(pad, 1).tolist() == [0, 0, 1, 0, 0, 0, 2, 1]
    same_numbers(example(), model)
    assert [record.max_abs_difference for record in ctx.rewrites] == [0.0]
    assert again(model, ctx) == 0


@pytest.mark.parametrize("example", SILENT)
def test_silent(example):
    """No pads, no convolution, or pads of two kinds."""
    model, _, fired = padded(example())
    assert fired == 0
    assert not model.nodes("Pad")


def test_only_what_is_named():
    """Samples decide; the pass does not."""
    assert again(read(one().model()), context(), ()) == 0


def test_what_crosses_is_said():
    """Crossings are given in bytes, or in words if extents are unknown."""
    assert padded(one().model())[1].rewrites[0].note == "105 bytes more cross to the device"
    assert padded(inner().model())[1].rewrites[0].note == "the zeros cross to the device, too"
    both = "256 bytes cross to the host, 396 back to the device"
    assert padded(device().model())[1].rewrites[0].note == both
    proto = device().model()
    for axis in (2, 3):
        proto.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = f"n{axis}"
    assert "it crosses to the host, and back" in padded(proto)[1].rewrites[0].note


def test_the_target_may_object():
    """An input that may not be larger stays."""
    limited = Target.model_validate(
        {
            "schema": 1, "name": "small",
            "operators": {"Conv": {"limits": {"in_h": {"max": 8}}}},
            "activations": {"dtype": "int8", "zero_point": [0]},
            "weights": {"dtype": "int8", "symmetric": True},
        }
    )  # fmt: skip
    _, ctx, fired = padded(one().model(), limited)
    assert fired == 0
    assert "in_h" in next(iter(ctx.refusals)).reason


def test_before_a_pad_takes_its_amounts_as_an_input():
    """Opset 10 is left alone."""
    model = read(one().model())
    model.graph.opset = 10
    assert again(model, context()) == 0
