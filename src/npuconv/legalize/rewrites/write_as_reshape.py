"""Write Squeeze, Unsqueeze and Flatten as the Reshape that the target lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.layout import reshape
from npuconv.model import edit, query

if TYPE_CHECKING:
    from npuconv.legalize.context import PassContext
    from npuconv.model.core import Model
    from npuconv.model.types import Node

_SAME = 0  # what a Reshape takes for an extent that stays where it is


@model_pass(Phase.LEGALIZE, after=("cancel-squeezes", "fit-convolution", "hoist-activations"))
def write_as_reshape(model: Model, ctx: PassContext) -> int:
    """Write Squeeze, Unsqueeze and Flatten as the Reshape that the target lists.

    They move no value, but a device that lists Reshape alone would hand the tensor to the
    host for them. Only where the target does not list the operator itself, and all
    extents are known; the batch may be open where it stays in front.
    """
    if ctx.target.operator("Reshape") is None:
        return 0
    return sum(_write(model, ctx, node) for node in model.nodes("Squeeze", "Unsqueeze", "Flatten"))


def _write(model: Model, ctx: PassContext, node: Node) -> int:
    if ctx.target.operator(node.op) is not None or query.is_constant(node.inputs[0]):
        return 0
    before, after = query.shape(node.inputs[0]), query.shape(node.outputs[0])
    if not before or not after:
        return 0
    kept = not isinstance(after[0], int) and after[0] == before[0]
    wanted = [_SAME if kept and axis == 0 else dim for axis, dim in enumerate(after)]
    known = [dim for dim in wanted if isinstance(dim, int)]
    if len(known) < len(wanted):
        ctx.refuse(model, node, "an extent is not known")
        return 0
    with ctx.rewrite(model, [node], node.op, "Reshape", modulus=None):
        result = reshape(model, node, node.inputs[0], known)
        edit.hand_over(result, node.outputs[0])
        edit.disconnect(node)
    return 1
