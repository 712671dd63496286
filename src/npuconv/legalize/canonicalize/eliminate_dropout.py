"""Take out Dropout nodes, which do nothing at inference.

A Dropout in training mode, or one whose mask is read, stays: it is not the identity.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.legalize.tools.replace import eliminate
from npuconv.model import Model, Node, query


@register_pass(Phase.CANONICALIZE, "Dropout", after=("fold-constants",))
def eliminate_dropout(model: Model, log: Log, node: Node) -> int:
    training = query.input_of(node, 2)
    if training is not None and query.scalar_input(node, 2) != 0:
        return log.refuse(model, node, "training_mode is set, or not constant")
    if len(node.outputs) > 1 and (node.outputs[1].outputs or model.is_output(node.outputs[1])):
        return log.refuse(model, node, "its mask is read")
    while len(node.outputs) > 1:
        del node.outputs[-1]
    return eliminate(model, log, node, "Dropout")
