"""Take out Pads that pad nothing, in any mode."""

from __future__ import annotations

from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, node_pass
from npuconv.legalize.tools.replace import eliminate
from npuconv.model import query
from npuconv.model.core import Model
from npuconv.model.types import Node


@node_pass(Phase.CANONICALIZE, "Pad", after=("raise-opset",))
def eliminate_pad(model: Model, log: Log, node: Node) -> int:
    amounts = query.pad_amounts(node)
    if amounts is None or any(pair != (0, 0) for pair in amounts):
        return 0
    return eliminate(model, log, node, "Pad by nothing")
