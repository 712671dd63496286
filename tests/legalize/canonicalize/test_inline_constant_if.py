"""Tests of inline-constant-if."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from support.asserts import read, run_pass, same_numbers
from support.builders import Net

NAME = "inline-constant-if"


def choosing(condition: bool, *, times: int = 1) -> Net:
    """Ifs in a row, whose branches use the same names."""
    net = Net(x=(1, 4, 8, 8)).conv("x", (4, 4, 1, 1), name="first")
    for _ in range(times):
        source = net.last
        then, other = (Net(prefix="same_") for _ in range(2))
        then.conv(source, (4, 4, 3, 3), name="conv", pads=[1] * 4).op("Relu")
        other.op("Neg", source, name="conv")
        made = net.constant(np.array([condition]))
        body = {"then_branch": then.body(), "else_branch": other.body()}
        net.op("If", made, name=f"if{len(net.nodes)}", **body)
    return net.op("Tanh")


def copying() -> Net:
    """A branch that hands on a constant."""
    net = Net(x=(1, 4, 8, 8))
    then, other = Net(prefix="a_"), Net(prefix="b_").op("Abs", "x")
    then.last = then.random(1, 4, 8, 8)
    body = {"then_branch": then.body(), "else_branch": other.body()}
    net.op("If", net.constant(np.array(True)), name="if", **body)
    return net.op("Add", "x", net.last)


def dynamic() -> Net:
    """The condition depends on the input."""
    net = Net(x=(1, 3, 8, 8))
    return net.branch(Net(prefix="a_").op("Neg", "x"), Net(prefix="b_").op("Abs", "x"))


FIRES = [
    lambda: choosing(True).model(),
    lambda: choosing(False).model(),
    lambda: choosing(True, times=2).model(),
    lambda: copying().model(),
]
SILENT = [lambda: dynamic().model(), lambda: Net(x=(1, 3, 8, 8)).conv("x").model()]


@pytest.mark.parametrize("build", FIRES)
def test_the_branch_takes_its_place(build):
    """The branch gives the same numbers, and no If is left."""
    proto = build()
    model = read(proto)
    assert run_pass(NAME, model) == sum(node.op_type == "If" for node in proto.graph.node)
    assert not model.nodes("If")
    same_numbers(proto, model)


def test_a_convolution_in_it_runs_on_the_device():
    """Its finding says what became of it."""
    proto = choosing(True, times=2).model()
    report = npuconv.check(proto)
    assert report.summary.verdict == "convertible"
    assert {f.rewritten_by for f in report.findings if f.code == "MDL004"} == {NAME}
    found = npuconv.convert(proto, format="float").model
    assert [node.op_type for node in found.graph.node].count("Conv") == 3
