"""Averages over a whole image, where nobody has written down how large a kernel may be."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from npuconv.legalize.fitting.layer import Layer, of_window, times
from npuconv.legalize.fitting.planner import Planner, write
from npuconv.model.conv import window
from npuconv.target.limit import Limit

if TYPE_CHECKING:
    from npuconv.legalize.context import PassContext
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor
    from npuconv.target import Operator

KERNEL = ("kernel_h", "kernel_w")


def cap_average(model: Model, ctx: PassContext, node: Node) -> tuple[Tensor, str]:
    """Write a large depthwise average as averages of averages, where its limit is unknown.

    Args:
        model: the model to change.
        ctx: for the target.
        node: a depthwise Conv of equal weights that has just been made.

    Returns:
        The result, and a note for the report; that of the node itself and '' where its
        kernel is known to be legal, or small.
    """
    operator, win = ctx.target.operator("Conv"), window(node)
    layer = None if win is None else of_window(win, bias=False, uniform=True)
    if operator is None or layer is None or not _is_large(layer, operator, ctx):
        return node.outputs[0], ""
    size = f"{_bytes(layer)} of weights"
    plan, _ = _capped(ctx, operator).plan(layer)
    if plan is None or plan.proposal is None:
        return node.outputs[0], f"its kernel {times(layer.kernel)} has {size}, and no known limit"
    result, count = write(model, node, plan, node.inputs[0])
    reason = f"the limit of the kernel is not known, and {times(layer.kernel)} has {size}"
    return result, f"{count} averages in a row: {reason}"


def _is_large(layer: Layer, operator: Operator, ctx: PassContext) -> bool:
    limits = operator.limits_for("depthwise")
    unknown = [name in limits and not limits[name].known for name in KERNEL]
    widest = ctx.planner.settings.widest_pool
    return any(
        open_ and extent > widest for open_, extent in zip(unknown, layer.kernel, strict=True)
    )


def _capped(ctx: PassContext, operator: Operator) -> Planner:
    """A planner for the same device with a kernel that is at most as large as is usual."""
    limits, widest = dict(operator.limits), ctx.planner.settings.widest_pool
    for name in KERNEL:
        if name in limits and not limits[name].known:
            limits[name] = Limit.model_validate({"max": widest})
    planner = replace(ctx.planner)
    planner.use(operator.model_copy(update={"limits": limits}))
    return planner


def _bytes(layer: Layer) -> str:
    size = layer.out_channels
    for extent in layer.weight[1:]:
        size *= extent
    return f"{size / 1024:.0f} KiB" if size >= 1024 else f"{size} bytes"
