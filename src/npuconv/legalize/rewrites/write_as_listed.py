"""Write an operator as another of the same meaning, which the target lists.

The Sum of two tensors as Add, and a Div by constants as Mul: only where the target does not list
the operator itself, which would run on the host.
"""

from __future__ import annotations

from npuconv.lazy import np
from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.model import Model, Node, edit, query

_OTHERS = {"Sum": "Add", "Div": "Mul"}


@register_pass(Phase.LEGALIZE, *_OTHERS)
def write_as_listed(model: Model, device: TargetDevice, log: Log, node: Node) -> int:
    successor = _OTHERS[node.op]
    if device.target.operator(node.op) or not device.target.operator(successor):
        return 0
    if query.is_constant(node.inputs[0]) or (node.op == "Sum" and len(node.inputs) != 2):
        return 0
    inputs = list(node.inputs)
    if node.op == "Div":
        divisor = query.constant_input(node, 1)
        if divisor is None or divisor.dtype.kind != "f":
            return 0
        with np.errstate(divide="ignore", over="ignore"):
            factor = np.asarray(1 / divisor.astype(np.float64), divisor.dtype)
        if not np.isfinite(factor).all() or not np.isfinite(divisor).all():
            return 0
        inputs[1] = edit.constant(model, f"{node.inputs[1].name}/reciprocal", factor)
    with log.rewrite(model, [node], node.op, successor, modulus=None):
        dims = query.shape(node.outputs[0])
        result = edit.insert(model, successor, inputs, origin=[node], shape=dims)
        edit.replace(result, node)
    return 1
