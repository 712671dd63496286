"""Activations that int8 saturation replaces: they are on the device without being listed."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.config import Options
from support.asserts import Passes, read
from support.builders import Net
from support.plans import planned
from support.target_files import NUMBERS, chip

ANY_ZERO = {**NUMBERS, "zero_point": {"range": [-128, 127]}}


def net(pads: int = 0) -> Net:
    """A convolution, to be followed by an activation and by another, with pads or without."""
    return Net(x=(1, 4, 8, 8)).conv("x", (4, 4, 1, 1), name="a", pads=[pads] * 4)


def clip(built: Net, low: float = 0.0, high: float = 6.0) -> Net:
    return built.op("Clip", built.last, *map(built.constant, np.float32([low, high])), name="act")


def then(built: Net, pads: int = 0) -> Net:
    return built.conv("", (4, 4, 3, 3), name="b", pads=[pads] * 4)


def place(built: Net, fused: list[str], fill: object = "any", **options: object) -> tuple[str, str]:
    """Placement and reason of the activation, on a device that fuses these activations.

    It pads with ``fill``: 0, or any zero point.
    """
    limits = {} if fill == "any" else {"pad_value": {"equals": fill}}
    target = chip(also={"fused_activations": fused, "activations": ANY_ZERO}, **limits)
    graph = planned(read(built.model()), Passes(target, Options(**options)))
    (node,) = (n for n in graph.model.nodes() if n.name == "act")
    return graph.plan.placement[id(node)], graph.plan.reason[id(node)]


RELU = "Clip from 0, written as Relu: int8 ends at its upper bound"
SATURATES = "no operator is left of it: int8 saturates at its bounds"


@pytest.mark.parametrize(
    ("build", "fused", "expected"),
    [
        (lambda: then(clip(net())), ["Relu"], RELU),
        (lambda: then(clip(net()), pads=1), ["Relu"], RELU),
        (lambda: then(clip(net())), [], SATURATES),
        (lambda: then(clip(net()), pads=1), [], SATURATES),
        (lambda: then(net().op("Relu", name="act")), [], SATURATES),
        (lambda: then(net().op("Relu", name="act")), ["Clip"], SATURATES),
        (lambda: then(clip(net()), pads=1), ["Clip"], "Clip after a convolution: fused"),
    ],
)
def test_on_the_device(build, fused, expected):
    """The lowest integer stands for 0; or 0 does, and a Relu is left."""
    assert place(build(), fused) == ("device", expected)


def test_a_device_that_pads_with_the_stored_integer_0():
    """Then the lowest integer cannot represent 0, and the bounds need an operator."""
    for build in (lambda: then(clip(net()), pads=1), lambda: then(net().op("Relu", name="act"), 1)):
        assert place(build(), [])[0] == "device"
        assert place(build(), [], fill=0)[0] == "undocumented"


def read_twice() -> Net:
    """The input of the activation may be negative, and a host operator reads it, too."""
    built = clip(net()).op("Neg", "t0", to="n")
    return built.conv("t1", (4, 4, 3, 3), name="b", to="y").output("n", "y")


@pytest.mark.parametrize(
    ("build", "fused"),
    [
        (lambda: then(clip(net(), low=-1.0)), ["Relu"]),
        (read_twice, []),
        (lambda: clip(Net(x=(1, 4, 8, 8)).conv().op("Sigmoid")), ["Relu"]),
    ],
)
def test_on_the_host(build, fused):
    """Values are negative, bounds are integers, or the host makes the tensor."""
    placement, reason = place(build(), fused)
    assert placement == "undocumented"
    assert "does not list" in reason


def test_int8_outputs_have_one_scale():
    """It ends at the upper bound of a Clip; its zero point is 0, so that a Relu is left."""
    assert place(clip(net()), ["Relu"]) == ("device", RELU)
    assert place(clip(net()), ["Relu"], io="int8") == ("device", RELU)
    assert place(clip(net()), [], io="int8")[0] == "undocumented"


def test_an_operator_behind_it_stays_on_the_device():
    """The host reads the activation, too: on the host, the pool would cross once more."""
    built = net().op("Relu", name="act")
    relu = built.last
    built.op("GlobalAveragePool", relu, to="p").conv("p", (4, 4, 1, 1), to="y").output("y", relu)
    operators = {"Conv": {}, "GlobalAveragePool": {}}
    target = chip(
        "", also={"operators": operators, "fused_activations": [], "activations": ANY_ZERO}
    )
    graph = planned(read(built.model()), Passes(target, Options()))
    assert {graph.plan.placement[id(n)] for n in graph.model.nodes()} == {"device"}
