"""Take out Reshapes and Flattens to the shape a tensor already has.

Only where both shapes are fully known: with a symbolic dimension on either side the
two might differ for another input.
"""

from __future__ import annotations

from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.replace import eliminate
from npuconv.model import query
from npuconv.model.core import Model
from npuconv.model.types import Node


@model_pass(Phase.CANONICALIZE, after=("raise-opset",))
def eliminate_reshape(model: Model, log: Log) -> int:
    return sum(
        eliminate(model, log, node, f"{node.op} to its own shape")
        for node in model.nodes("Reshape", "Flatten")
        if _is_noop(node)
    )


def _is_noop(node: Node) -> bool:
    before = query.static_shape(node.inputs[0])
    return before is not None and before == query.static_shape(node.outputs[0])
