"""Facts and limits are measured once for all nodes that say the same of themselves."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.config import Options
from npuconv.facts import FACTS
from npuconv.legalize import manager as _manager
from npuconv.legalize.registry import Phase
from npuconv.model import query
from npuconv.rules import _context
from npuconv.rules._context import RuleContext
from support.asserts import builtin, context, read
from support.builders import Net
from support.zoo import ZOO

X = (1, 4, 8, 8)


def known(ctx, node):
    """All that is on the sheet of a node."""
    found = [(v.values, v.value, v.limit, v.source) for v in ctx.violations(node, *FACTS)]
    return ctx.facts(node), ctx.limits(node), found


def test_sheets_say_what_would_be_measured_anew():
    """Through all models and rewrites, with the same sheets for all of them."""
    sheets, looked = {}, 0
    for build in ZOO.values():
        model = read(build())
        for phase in (Phase.CANONICALIZE, Phase.LEGALIZE):
            ctx = RuleContext(model, builtin(), Options(), sheets)
            for node in model.nodes():
                looked += 1
                assert known(ctx, node) == known(RuleContext(model, builtin(), Options()), node)
            _manager.run_phase(model, phase, context())
    assert 0 < len(sheets) < looked


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
def test_a_node_that_changed_has_another_sheet(change):
    """In the next lint; within one nothing changes."""
    model = read(Net(x=X).conv("x", (4, 4, 3, 3)).model())
    (node,), sheets = model.nodes(), {}
    before = RuleContext(model, builtin(), Options(), sheets).facts(node)
    change(node)
    after = RuleContext(model, builtin(), Options(), sheets).facts(node)
    assert before != after == RuleContext(model, builtin(), Options()).facts(node)
    assert len(sheets) == 2


def test_layers_of_one_kind_share_a_sheet():
    """Their weights differ, and nothing that is measured."""
    model = read(Net(x=X).conv("x", (4, 4, 1, 1)).conv("", (4, 4, 1, 1)).model())
    first, second = model.nodes()
    ctx = RuleContext(model, builtin(), Options())
    assert ctx.facts(first) is ctx.facts(second)


def test_amounts_of_a_pad_are_told_apart():
    """They are values of a constant, not attributes; here all shapes are the same."""
    net = Net(x=X).pad([0, 0, 2, 0, 0, 0, 0, 0], to="a").pad([0, 0, 0, 0, 0, 0, 2, 0])
    net.nodes[1].input[0] = "x"
    model = read(net.output("a", net.last).model())
    first, second = model.nodes("Pad")
    ctx = RuleContext(model, builtin(), Options())
    assert query.shape(first.outputs[0]) == query.shape(second.outputs[0])
    assert ctx.facts(first)["pad_top"] == ctx.facts(second)["pad_bottom"] == 2


def test_what_cannot_be_compared_is_measured_anew():
    """Tensors as attributes: no sheet is kept for them."""
    model = read(ZOO["branches"]())
    (node,) = model.nodes("If")
    node.attrs["strange"] = model.nodes()[0].outputs[0]
    sheets = {}
    assert RuleContext(model, builtin(), Options(), sheets).limits(node) == {}
    assert not sheets


def test_sheets_do_not_pile_up(monkeypatch):
    """A model where no two layers are alike must not fill the memory."""
    monkeypatch.setattr(_context, "_MOST_SHEETS", 2)
    net = Net(x=X)
    for size in range(1, 6):
        net.conv("x", (size, 4, 1, 1))
    model, sheets = read(net.output(*(f"t{i}" for i in range(5))).model()), {}
    ctx = RuleContext(model, builtin(), Options(), sheets)
    assert [ctx.facts(node)["out_c"] for node in model.nodes()] == [1, 2, 3, 4, 5]
    assert len(sheets) <= 2
