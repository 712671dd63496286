"""Write the mean over height and width as a GlobalAveragePool.

PyTorch exports ``x.mean((2, 3))`` and its adaptive pool as a ReduceMean. Only of rank
4 and over exactly the last two axes. Without ``keepdims`` a Squeeze follows.

Refuses the mean and the variance of a normalization (a mean that is subtracted from
its input, or a mean of squares): a device would round them to int8, and
all later values are divided by them.
"""

from __future__ import annotations

from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, node_pass
from npuconv.legalize.tools.layout import squeeze
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node

RANK, SPATIAL = 4, (2, 3)
AXES_AS_INPUT = 13  # first opset in which a Squeeze reads its axes


@node_pass(Phase.CANONICALIZE, "ReduceMean", after=("raise-opset",), infers=True)
def replace_reduce_mean(model: Model, log: Log, node: Node) -> int:
    dims, keepdims = query.shape(node.inputs[0]), bool(query.attribute(node, "keepdims", 1))
    if dims is None or len(dims) != RANK or query.reduced_axes(node) != SPATIAL:
        return 0
    if query.dtype_name(node.inputs[0]) != "float32" or query.is_constant(node.inputs[0]):
        return 0
    reason = _obstacle(model, node, keepdims=keepdims)
    if reason:
        return log.refuse(model, node, reason)
    after = "GlobalAveragePool" + ("" if keepdims else " + Squeeze")
    source, result = node.inputs[0], node.outputs[0]
    with log.rewrite(model, [node], f"ReduceMean over axes {list(SPATIAL)}", after, modulus=None):
        shape = [*dims[:2], 1, 1]
        pooled = edit.insert(model, "GlobalAveragePool", [source], origin=[node], shape=shape)
        if keepdims:
            edit.hand_over(pooled, result)
        else:
            edit.disconnect_outputs(node)
            squeeze(model, node, pooled, result, SPATIAL)
        edit.disconnect(node)
    return 1


def _obstacle(model: Model, node: Node, *, keepdims: bool) -> str:
    """Return why a mean cannot be written as a pool, or ''."""
    source, producer = node.inputs[0], query.producer(node.inputs[0])
    differences = [n for n in query.consumers(node.outputs[0]) if n.op == "Sub"]
    is_subtracted = any(tensor is source for n in differences for tensor in n.inputs)
    squares = (
        producer is not None and producer.op == "Mul" and producer.inputs[0] is producer.inputs[1]
    )
    if is_subtracted or squares or (producer is not None and producer.op == "Pow"):
        return "it is the mean or the variance of a normalization"
    if not keepdims and model.opset < AXES_AS_INPUT:
        return f"opset {model.opset} has no Squeeze that reads its axes"
    return ""
