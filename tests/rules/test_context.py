"""Tests of the fact cache: facts and limits are measured once for all equal nodes."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.config import Options
from npuconv.legalize.registry import Phase
from npuconv.model import query
from npuconv.rules import context as rule_context
from npuconv.rules.context import RuleContext
from npuconv.target.facts import FACTS
from support.asserts import builtin, context, read
from support.builders import Net
from support.zoo import ZOO

X = (1, 4, 8, 8)


def known(ctx, node):
    """Facts, limits and violations of a node."""
    found = [(v.values, v.value, v.limit, v.source) for v in ctx.violations(node, *FACTS)]
    return ctx.facts(node), ctx.limits(node), found


def test_cached_facts_are_those_of_a_new_measurement():
    """One cache for all models and rewrites."""
    cache, looked = {}, 0
    for build in ZOO.values():
        model = read(build())
        for phase in (Phase.CANONICALIZE, Phase.LEGALIZE):
            ctx = RuleContext(model, builtin(), Options(), cache)
            for node in model.nodes():
                looked += 1
                assert known(ctx, node) == known(RuleContext(model, builtin(), Options()), node)
            context().run_phase(model, phase)
    assert 0 < len(cache) < looked


@pytest.mark.parametrize(
    "change",
    [
        lambda node: node.attrs.update(strides=[2, 1]),
        lambda node: node.attrs.update(auto_pad="VALID"),
        lambda node: setattr(node.inputs[0], "shape", [1, 4, 9, 8]),
        lambda node: setattr(node.inputs[0], "dtype", np.float16),
        lambda node: setattr(node.outputs[0], "shape", [1, 4, 5, "w"]),
    ],
)
def test_a_changed_node_is_measured_again(change):
    """The next lint sees the change; within one lint nothing changes."""
    model = read(Net(x=X).conv("x", (4, 4, 3, 3)).model())
    (node,), cache = model.nodes(), {}
    before = RuleContext(model, builtin(), Options(), cache).facts(node)
    change(node)
    after = RuleContext(model, builtin(), Options(), cache).facts(node)
    assert before != after == RuleContext(model, builtin(), Options()).facts(node)
    assert len(cache) == 2


def test_equal_layers_share_their_facts():
    """Only their weights differ, which are no facts."""
    model = read(Net(x=X).conv("x", (4, 4, 1, 1)).conv("", (4, 4, 1, 1)).model())
    first, second = model.nodes()
    ctx = RuleContext(model, builtin(), Options())
    assert ctx.facts(first) is ctx.facts(second)


def test_amounts_of_a_pad_are_part_of_the_key():
    """Amounts are a constant, not attributes, and all shapes are the same here."""
    net = Net(x=X).pad([0, 0, 2, 0, 0, 0, 0, 0], to="a").pad([0, 0, 0, 0, 0, 0, 2, 0])
    net.nodes[1].input[0] = "x"
    model = read(net.output("a", net.last).model())
    first, second = model.nodes("Pad")
    ctx = RuleContext(model, builtin(), Options())
    assert query.shape(first.outputs[0]) == query.shape(second.outputs[0])
    assert ctx.facts(first)["pad_top"] == ctx.facts(second)["pad_bottom"] == 2


def test_a_node_that_cannot_be_hashed_is_not_cached():
    """A tensor as attribute has no key."""
    model = read(ZOO["branches"]())
    (node,) = model.nodes("If")
    node.attrs["strange"] = model.nodes()[0].outputs[0]
    cache = {}
    assert RuleContext(model, builtin(), Options(), cache).limits(node) == {}
    assert not cache


def test_the_cache_is_bounded(monkeypatch):
    """A model of many different layers does not fill the memory."""
    monkeypatch.setattr(rule_context, "MAX_CACHED_NODES", 2)
    net = Net(x=X)
    for size in range(1, 6):
        net.conv("x", (size, 4, 1, 1))
    model, cache = read(net.output(*(f"t{i}" for i in range(5))).model()), {}
    ctx = RuleContext(model, builtin(), Options(), cache)
    assert [ctx.facts(node)["out_c"] for node in model.nodes()] == [1, 2, 3, 4, 5]
    assert len(cache) <= 2
