"""Write an operator as another of the same meaning, which the target lists.

Squeeze, Unsqueeze and Flatten as Reshape, the Sum of two tensors as Add, and a Div by
constants as Mul: only where the target does not list the operator itself, which would
run on the host. A Reshape needs all extents; the batch may be open where it stays in
front.
"""

from __future__ import annotations

from npuconv.legalize.device import TargetDevice
from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase, node_pass
from npuconv.legalize.tools.layout import reshape
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor

_SAME = 0  # what a Reshape takes for an extent that stays where it is
_OTHERS = {
    **dict.fromkeys(("Squeeze", "Unsqueeze", "Flatten"), "Reshape"),
    "Sum": "Add",
    "Div": "Mul",
}


@node_pass(Phase.LEGALIZE, *_OTHERS, after=("cancel-squeezes", "hoist-activations"))
def write_as_listed(model: Model, device: TargetDevice, log: Log, node: Node) -> int:
    successor = _OTHERS[node.op]
    if device.target.operator(node.op) or not device.target.operator(successor):
        return 0
    shape = _shape(node) if successor == "Reshape" else []
    if shape is None:
        log.refuse(model, node, "an extent is not known")
        return 0
    if query.is_constant(node.inputs[0]) or (node.op == "Sum" and len(node.inputs) != 2):
        return 0
    inputs = _factors(model, node) if node.op == "Div" else list(node.inputs)
    if not inputs:
        return 0
    with log.rewrite(model, [node], node.op, successor, modulus=None):
        if successor == "Reshape":
            result = reshape(model, node, node.inputs[0], shape)
        else:
            dims = query.shape(node.outputs[0])
            result = edit.insert(model, successor, inputs, origin=[node], shape=dims)
        edit.hand_over(result, node.outputs[0])
        edit.disconnect(node)
    return 1


def _factors(model: Model, node: Node) -> list[Tensor]:
    """Return the inputs of the Mul; none if the divisor has no finite reciprocal."""
    import numpy as np

    divisor = query.constant_input(node, 1)
    if divisor is None or divisor.dtype.kind != "f":
        return []
    with np.errstate(divide="ignore", over="ignore"):
        factor = np.asarray(1 / divisor.astype(np.float64), divisor.dtype)
    if not np.isfinite(factor).all() or not np.isfinite(divisor).all():
        return []
    return [node.inputs[0], edit.constant(model, f"{node.inputs[1].name}/reciprocal", factor)]


def _shape(node: Node) -> list[int] | None:
    """Return the target of the Reshape; None if an extent is not known."""
    before, after = query.shape(node.inputs[0]), query.shape(node.outputs[0])
    if not before or not after:
        return None
    keeps_batch = not isinstance(after[0], int) and after[0] == before[0]
    target = [_SAME if keeps_batch and axis == 0 else dim for axis, dim in enumerate(after)]
    numbers = [dim for dim in target if isinstance(dim, int)]
    return numbers if len(numbers) == len(target) else None
