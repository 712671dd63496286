"""Take an axis out of convolutions that have three or more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.rank import refuses_rank
from npuconv.model import query
from npuconv.model.axis_removal import Removal, obstacles, removal
from npuconv.model.conv import window

if TYPE_CHECKING:
    from npuconv.legalize.context import PassContext
    from npuconv.model.conv import Window
    from npuconv.model.core import Model
    from npuconv.model.types import Node

MOST_AXES = 2
_WAYS = {
    "channels": "its cells are channels",
    "merge": "merged with the axis before",
    "batch": "its cells are a batch",
}


@model_pass(Phase.LEGALIZE, after=("resolve-auto-pad", "fold-pad"), infers=True)
def remove_3d_axis(model: Model, ctx: PassContext) -> int:
    """Take an axis out of convolutions that have three or more.

    An axis goes where the output has one cell along it (its inputs become channels), where
    the kernel has one cell along it and along a neighbour (the two are merged), or where
    the kernel has one cell along it (it becomes a batch; a stride becomes a Slice). Conv
    and ConvTranspose. All other axes are refused, with what keeps them.
    """
    if model.opset < 13:
        return 0
    return sum(_remove(model, ctx, node) for node in model.nodes(*query.CONVOLUTIONS))


def _remove(model: Model, ctx: PassContext, node: Node) -> int:
    rank = query.rank(query.input_of(node, 1))
    if rank is not None and rank <= MOST_AXES + 2:
        return 0  # nearly all; what follows takes longer
    win = window(node)
    if win is None or win.axes is None or win.axes <= MOST_AXES or not refuses_rank(ctx, win):
        return 0
    way = removal(win)
    reason = _obstacle(node)
    if way is None:
        reason = "no axis can go: " + "; ".join(obstacles(win))
    if reason or way is None:
        ctx.refuse(model, node, reason)
        return 0
    before = f"{node.op} of {win.axes} axes, kernel {'x'.join(map(str, win.kernel or ()))}"
    after = f"{node.op} of {win.axes - 1} axes: axis {way.axis + 2} goes, {_WAYS[way.how]}"
    with ctx.rewrite(model, [node], before, after, exact=_exact(win, way)):
        _replace(model, node, way)
    return 1


def _exact(win: Window, way: Removal) -> set[int]:
    """Axes whose extents the Reshapes contain: what is measured must have them."""
    axis, last = way.axis + 2, 2 + (win.axes or 0)
    others = {a for a in range(2, last) if a != axis}
    if way.how == "merge":
        return {axis - 1} | {a for a in others if a > axis}
    if way.how == "batch":
        return others if win.input and isinstance(win.input[0], int) else others | {axis}
    return others | {axis}


def _obstacle(node: Node) -> str:
    if query.constant_input(node, 1) is None:
        return "its weights are not constant"
    return ""


def _replace(model: Model, node: Node, way: Removal) -> None:
    from npuconv.legalize.tools import axes as _axes

    take_out = {"channels": _axes.to_channels, "merge": _axes.merge, "batch": _axes.to_batch}
    take_out[way.how](model, node, way)
