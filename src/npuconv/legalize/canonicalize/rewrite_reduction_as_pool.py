"""Write the mean or the maximum over all spatial axes as a global pool.

PyTorch exports ``x.mean((2, 3))`` and its adaptive pool as a ReduceMean, the maximum over time of
a text classifier as a ReduceMax. Of rank 3 and 4, over exactly the axes behind the channels.
Without ``keepdims`` a Squeeze follows.

Refuses the mean and the variance of a normalization (a mean that is subtracted from
its input, or a mean of squares): a device would round them to int8, and
all later values are divided by them.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.legalize.tools.conv_forms import AXES_AS_INPUT
from npuconv.legalize.tools.layout import squeeze
from npuconv.model import Model, Node, edit, query

SPATIAL = {3: (2,), 4: (2, 3)}  # spatial axes by rank
POOLS = {"ReduceMean": "GlobalAveragePool", "ReduceMax": "GlobalMaxPool"}


@register_pass(Phase.CANONICALIZE, *POOLS, after=("raise-opset",), infers=True)
def rewrite_reduction_as_pool(model: Model, log: Log, node: Node) -> int:
    dims, keepdims = query.shape(node.inputs[0]), bool(query.attribute(node, "keepdims", 1))
    axes = SPATIAL.get(len(dims or ()))
    if dims is None or axes is None or query.reduced_axes(node) != axes:
        return 0
    if query.dtype_name(node.inputs[0]) != "float32" or query.is_constant(node.inputs[0]):
        return 0
    reason = ""
    if node.op == "ReduceMean" and query.is_normalizing(node):
        reason = "it is the mean or the variance of a normalization"
    elif not keepdims and model.opset < AXES_AS_INPUT:
        reason = f"opset {model.opset} has no Squeeze that reads its axes"
    if reason:
        return log.refuse(model, node, reason)
    op = POOLS[node.op]
    after = op + ("" if keepdims else " + Squeeze")
    with log.rewrite(model, [node], f"{node.op} over axes {list(axes)}", after, modulus=None):
        shape = [*dims[:2], *(1 for _ in axes)]
        pooled = edit.insert(model, op, [node.inputs[0]], origin=[node], shape=shape)
        result = node.outputs[0]
        edit.disconnect(node)
        if keepdims:
            edit.hand_over(pooled, result)
        else:
            squeeze(model, node, pooled, result, axes)
    return 1
