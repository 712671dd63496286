"""Take out Reshapes and Flattens to the shape a tensor already has.

Only where both shapes are fully known: with a symbolic dimension on either side the
two might differ for another input.
"""

from __future__ import annotations

from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, node_pass
from npuconv.legalize.tools.replace import eliminate
from npuconv.model import query
from npuconv.model.core import Model
from npuconv.model.types import Node


@node_pass(Phase.CANONICALIZE, "Reshape", "Flatten", after=("raise-opset",))
def eliminate_reshape(model: Model, log: Log, node: Node) -> int:
    shape = query.static_shape(node.inputs[0])
    if shape is None or shape != query.static_shape(node.outputs[0]):
        return 0
    return eliminate(model, log, node, f"{node.op} to its own shape")
