"""Tests of the facts that rules measure."""

from __future__ import annotations

from npuconv.config import Options
from npuconv.rules.context import RuleContext
from support.asserts import builtin, read
from support.builders import Net

X = (1, 4, 8, 8)


def test_facts_of_a_node_are_measured_once_per_lint():
    """The next lint sees a change; within one lint nothing changes."""
    model = read(Net(x=X).conv("x", (4, 4, 3, 3)).model())
    (node,) = model.nodes()
    ctx = RuleContext(model, builtin(), Options())
    before = ctx.facts(node)
    node.attrs["strides"] = [2, 1]
    assert ctx.facts(node) is before
    assert RuleContext(model, builtin(), Options()).facts(node)["stride_h"] == 2
