"""Regions of operators that are one table."""

from __future__ import annotations

from npuconv.partition import make_plan
from support.asserts import read
from support.builders import Net
from support.target_files import chip

X = (1, 4, 8, 8)
OPS = ("Conv", "Add", "Mul", "Sigmoid", "Clip", "Tanh")


def fused(net: Net, ops: tuple[str, ...] = OPS) -> set[str]:
    """Tensors that are never stored."""
    also = {"operators": {op: {} for op in ops}, "unlisted_operators": "host"}
    plan = make_plan(read(net.model()), chip("", also=also))
    stored = {name for group in plan.groups for name in group.tensors}
    assert plan.fused.isdisjoint(stored)
    return plan.fused


def net() -> Net:
    return Net(x=X).conv("x", (4, 4, 1, 1), to="a")


def test_a_gate_of_itself():
    """SiLU: both inputs of the Mul follow from one tensor."""
    built = net().op("Sigmoid", to="s").op("Mul", "a", "s", to="m").conv("m", (4, 4, 1, 1))
    assert fused(built) == {"s"}


def test_a_clip_within_a_region_must_be_listed():
    built = net()
    built.op("Add", "a", built.constant(3.0), to="b")
    built.op("Clip", "b", built.constant(0.0), built.constant(6.0), to="c")
    built.op("Mul", "a", "c", to="d").conv("d", (4, 4, 1, 1))
    assert fused(built) == {"b", "c"}
    assert fused(built, ("Conv", "Add", "Mul")) == set()


def test_what_others_read_is_stored():
    """A tensor that a convolution or the user reads has a scale."""
    built = net().op("Sigmoid", to="s").op("Tanh", to="t").conv("s", (4, 4, 1, 1), to="c")
    assert fused(built.op("Add", "c", "t").conv("", (4, 4, 1, 1))) == set()
    built = net().op("Sigmoid", to="s").op("Tanh", to="t").conv("t", (4, 4, 1, 1), to="c")
    assert fused(built.output("c", "s")) == set()


def test_two_tensors_are_no_table():
    """An Add of two convolutions reads two; what follows it is a region of its own."""
    built = net().conv("x", (4, 4, 1, 1), to="b").op("Add", "a", "b", to="s")
    built.op("Sigmoid", to="t").op("Tanh", to="u").conv("u", (4, 4, 1, 1))
    assert fused(built) == {"t"}


def test_constants_of_channels_are_no_table():
    built = net()
    built.op("Mul", "a", built.random(4, 1, 1), to="m").op("Sigmoid", to="s")
    assert fused(built.conv("", (4, 4, 1, 1))) == set()
