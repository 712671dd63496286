"""Turn convolutions of several groups into plain ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.legalize.forms import choose, chosen
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.group_forms import group_forms, refuses_group
from npuconv.model import query
from npuconv.model.conv import window

if TYPE_CHECKING:
    from npuconv.legalize.context import PassContext
    from npuconv.model.conv import Window
    from npuconv.model.core import Model
    from npuconv.model.types import Node


@model_pass(
    Phase.LEGALIZE,
    after=("resolve-auto-pad", "rewrite-1d-as-2d", "rewrite-conv-transpose-as-conv"),
)
def split_grouped_convolution(model: Model, ctx: PassContext) -> int:
    """Turn convolutions of several groups into plain ones.

    Where the target refuses the group (between 1 and the channels, mostly), there are two
    forms, and the cheaper one that it takes is chosen by the ``costs`` of the target file
    (``--prefer split`` or ``dense`` overrides):

    - split: one convolution for each group over its slice of the channels, then Concat.
      The same MACs and weights; the slices and the result are moved.
    - dense: one convolution over all channels, whose weights are zero between groups. It
      has ``group`` times the MACs and the weights.

    A depthwise convolution with several outputs for each channel stays one where the
    target takes it.
    """
    if model.opset < 13:
        return 0
    return sum(_rewrite(model, ctx, node) for node in model.nodes("Conv"))


def _rewrite(model: Model, ctx: PassContext, node: Node) -> int:
    if int(query.attribute(node, "group", 1)) < 2:
        return 0
    win = window(node)
    if win is None or not refuses_group(ctx, win):
        return 0
    if reason := _obstacle(node, win):
        ctx.refuse(model, node, reason)
        return 0
    forms = choose(ctx.target, ctx.options, group_forms(ctx, win))
    best = chosen(forms)
    if best is None:
        ctx.refuse(model, node, "; ".join(f"{f.name}: {f.obstacle}" for f in forms))
        return 0
    parts, channels = win.group, win.in_channels
    split = best.name == "split"
    after = f"{parts} Conv + Concat" if split else "Conv with zeros between the groups"
    before = f"Conv, group {parts} of {channels} channels"
    with ctx.rewrite(model, [node], before, after) as record:
        record.forms = forms
        _replace(model, node, win, split=split)
    return 1


def _obstacle(node: Node, win: Window) -> str:
    if win.kernel is None or win.weight is None or win.in_channels is None:
        return "the extents of its weights are not known"
    if query.constant_input(node, 1) is None:
        return "its weights are not constant"
    if query.input_of(node, 2) is not None and query.constant_input(node, 2) is None:
        return "its bias is not constant"
    if win.weight[0] % win.group:
        return f"{win.weight[0]} output channels do not divide into {win.group} groups"
    return ""


def _replace(model: Model, node: Node, win: Window, *, split: bool) -> None:
    from npuconv.legalize.tools import grouped as _grouped

    if split:
        _grouped.split(model, node, win)
    else:
        _grouped.make_dense(model, node, win)
