"""Tests of convolution-in-subgraph."""

from __future__ import annotations

from support.asserts import finding, findings
from support.builders import Net

CODE = "MDL004"
X = (1, 3, 8, 8)


def then(op: str = "Conv") -> Net:
    return Net(prefix="a").conv("x", (3, 3, 1, 1), op=op, name="inner")


def otherwise(prefix: str = "b") -> Net:
    return Net(prefix=prefix).op("Relu", "x")


def nested() -> Net:
    inner = Net(prefix="n").op("Neg", "x").branch(then(), otherwise())
    return Net(x=X).branch(inner, otherwise("c"))


FIRES = [
    lambda: Net(x=X).branch(then(), otherwise()).model(),
    lambda: Net(x=X).branch(otherwise(), then("ConvTranspose")).model(),
    lambda: nested().model(),
]
SILENT = [
    lambda: Net(x=X).conv("x").branch(otherwise("a"), otherwise("b")).model(),
    lambda: Net(x=X).conv("x").model(),
]


def test_it_says_which_branch():
    """The convolution by its own name, and the way to it."""
    found = finding(FIRES[0](), CODE)
    assert found.message == "Conv lies in subgraph 'if/then_branch' and cannot be taken out of it"
    assert (found.node, found.op_type, found.value) == ("inner", "Conv", "if/then_branch")


def test_the_way_leads_through_every_level():
    """An If in an If has both in its path."""
    assert finding(FIRES[2](), CODE).value == "if/then_branch/if/then_branch"


def test_one_finding_for_each_convolution():
    """Both branches may hold one."""
    proto = Net(x=X).branch(then(), Net(prefix="b").conv("x")).model()
    assert {f.value for f in findings(proto, CODE)} == {"if/then_branch", "if/else_branch"}
