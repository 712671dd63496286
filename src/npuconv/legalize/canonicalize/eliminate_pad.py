"""Take out Pads that pad nothing, in whatever mode."""

from __future__ import annotations

from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.replace import eliminate
from npuconv.model import query
from npuconv.model.core import Model
from npuconv.model.types import Node


@model_pass(Phase.CANONICALIZE, after=("raise-opset",))
def eliminate_pad(model: Model, log: Log) -> int:
    return sum(
        eliminate(model, log, node, "Pad by nothing")
        for node in model.nodes("Pad")
        if _is_noop(node)
    )


def _is_noop(node: Node) -> bool:
    amounts = query.pad_amounts(node)
    return amounts is not None and all(a == (0, 0) for a in amounts)
