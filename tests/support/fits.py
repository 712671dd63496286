"""Rewrite of one convolution for a device with limits, compared with the original.

found = fit(Net(x=(1, 8, 9, 9)).conv("x", (4, 8, 3, 3)), in_c={"max": 4})
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from npuconv.config import Options
from npuconv.legalize.log import RewriteRecord
from npuconv.legalize.split.layer import Layer
from npuconv.legalize.split.limits import Demand
from npuconv.legalize.split.proposal import LayerSplit, Proposal
from npuconv.model.conv import window
from npuconv.model.core import Model
from support.asserts import Passes, read, run_pass, same_numbers
from support.builders import Net
from support.target_files import chip

NAME = "fit-convolution"


@dataclass
class Fitted:
    """Result of the pass."""

    model: Model
    fired: int
    record: RewriteRecord | None
    refusals: list[str]

    @property
    def ops(self) -> Counter[str]:
        """Count the nodes of each operator."""
        return Counter(node.op for node in self.model.nodes())

    @property
    def weights(self) -> set[str]:
        """Names of the weights that convolutions read."""
        return {node.inputs[1].name for node in self.model.nodes("Conv")}


def fit(
    net: Net,
    costs: dict[str, float] | None = None,
    also: dict[str, Any] | None = None,
    **limits: Any,
) -> Fitted:
    """Run the pass; assert that the result is equal, legal, and not rewritten a second time.

    ``also`` are further keys of the target file.
    """
    proto = net.model()
    target = chip(also={**(also or {}), **({"costs": costs} if costs else {})}, **limits)
    model, ctx = read(proto), Passes(target, Options(format="float"))
    fired = run_pass(NAME, model, ctx)
    record = ctx.rewrites[0] if ctx.rewrites else None
    same_numbers(proto, model)
    if fired:
        for node in model.nodes("Conv"):
            win = window(node)
            assert win is not None
            assert not ctx.device.breaks(win, node), node.name
        assert run_pass(NAME, model, ctx) == 0
    return Fitted(model, fired, record, [r.reason for r in ctx.refusals])


def layer(weight: tuple[int, ...] = (4, 8, 3, 3), cells: int = 16, **attrs: Any) -> Layer:
    """A convolution of a square image with this side."""
    group = attrs.get("group", 1)
    attrs.setdefault("source", (1, weight[1] * group, cells, cells))
    defaults: dict[str, Any] = {
        "strides": (1, 1), "dilations": (1, 1), "pads": ((0, 0), (0, 0)),
    }  # fmt: skip
    return Layer(weight=weight, **{**defaults, **attrs})


def proposals(split: LayerSplit, original: Layer, **limits: Any) -> list[Proposal]:
    """The forms that one way to split proposes."""
    operator = chip(original.op, **limits).operator(original.op)
    assert operator is not None
    return list(split.propose(original, Demand(operator)))
