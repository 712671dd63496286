"""Tests of eliminate-pad."""

from __future__ import annotations

import pytest

from support.asserts import context, read, refusals, run_pass, same_numbers
from support.builders import Net

NAME = "eliminate-pad"

FIRES = [
    lambda: Net(x=(1, 3, 8, 8)).pad([0] * 8).conv().model(),
    lambda: Net(x=(1, 3, 8, 8)).op("Relu").pad([0] * 8, None, mode="reflect").model(),
    lambda: Net(opset=10, x=(1, 3, 8, 8)).op("Pad", pads=[0] * 8).op("Relu").model(),
]
SILENT = [
    lambda: Net(x=(1, 3, 8, 8)).pad([0, 0, 1, 0, 0, 0, 0, 0]).op("Relu").model(),
    lambda: Net(x=(1, 3, 8, 8)).pad([0, 0, -1, 0, 0, 0, 1, 0]).op("Relu").model(),
    lambda: Net(x=(1, 3, 8, 8)).pad([0] * 8).model(),
]


@pytest.mark.parametrize("build", FIRES)
def test_what_is_left(build):
    """No Pad; the neighbour answers for itself alone."""
    proto = build()
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 1
    (node,) = model.nodes()
    assert model.origin(node) == (node.name,)
    assert (ctx.rewrites[0].before, ctx.rewrites[0].after) == ("Pad by nothing", "nothing")
    assert ctx.rewrites[0].difference == 0.0
    same_numbers(proto, model)


def test_it_stays_between_an_input_and_an_output():
    """An input that is an output needs a node that copies."""
    assert [node for node, _ in refusals(NAME, SILENT[2]())] == ["pad0"]


def test_amounts_that_are_not_constant():
    """Computed amounts may be other than zero."""
    net = Net(x=(1, 3), y=(4,))
    net.op("Shape", "y").op("Concat", *["t0"] * 4, axis=0).op("Pad", "x", "t1").op("Relu")
    model = read(net.model())
    assert run_pass(NAME, model) == 0
