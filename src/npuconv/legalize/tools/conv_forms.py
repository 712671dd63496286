"""Limits of a target on rank and groups of a convolution, and the forms groups can take."""

from __future__ import annotations

import math
from dataclasses import replace

from npuconv.legalize.context import PassContext
from npuconv.model import query
from npuconv.model.conv import Window
from npuconv.model.facts import of_window
from npuconv.model.types import Node
from npuconv.partition.costs import Cost, Form

Dims = tuple[int | str | None, ...]

MAX_PARTS = 256  # convolutions one is split into at most: more cost more than they save


def refuses_rank(ctx: PassContext, win: Window) -> bool:
    """Return whether a known limit of the target's Conv excludes the rank of this one."""
    conv = ctx.target.operator("Conv")
    if conv is None or win.axes is None:
        return False
    rank = conv.limits_for(win.mode).get("rank")
    return rank is not None and rank.allows(win.axes + 2, {}) is False


def refuses_group(ctx: PassContext, win: Window) -> bool:
    """Return whether the target refuses the groups of a convolution."""
    operator = ctx.target.operator("Conv")
    if operator is None:
        return False
    facts = of_window(win)
    limits = operator.limits_for(win.mode)
    about = ("group", "mode", "channel_multiplier")
    return any(limits[n].allows(facts.get(n), facts) is False for n in about if n in limits)


def constants_obstacle(node: Node) -> str:
    """Return why weights or bias of a convolution cannot be rewritten, or ''."""
    if query.constant_input(node, 1) is None:
        return "its weights are not constant"
    if query.input_of(node, 2) is not None and query.constant_input(node, 2) is None:
        return "its bias is not constant"
    return ""


def objections(ctx: PassContext, win: Window) -> list[str]:
    """Return the objections to a convolution that rewriting its groups does not remove."""
    if win.group < 2 or not refuses_group(ctx, win):
        return ctx.lasting_objections(win)
    forms = group_forms(ctx, win)
    return [] if any(not f.obstacle for f in forms) else [f.obstacle for f in forms]


def group_forms(ctx: PassContext, win: Window) -> list[Form]:
    """Return the forms split (a convolution for each group) and dense (one over all channels).

    Each has its cost and the first objection of the target.
    """
    assert win.weight is not None
    outputs, inputs = win.weight[0] // win.group, win.weight[1]
    part = replace(
        win,
        group=1,
        weight=(outputs, *win.weight[1:]),
        input=with_channels(win.input, inputs),
        output=with_channels(win.output, outputs),
    )
    whole = replace(win, group=1, weight=(win.weight[0], inputs * win.group, *win.weight[2:]))
    against, each, dense = ctx.lasting_objections(part), ctx.fitted(part), ctx.fitted(whole)
    if win.group > MAX_PARTS:
        against.append(f"it would take {win.group} convolutions")
    moved = elements(win.input) + elements(win.output) + each.moved_bytes * win.group
    return [
        Form("split", _times(each.cost, win.group), moved, next(iter(against), "")),
        Form(
            "dense",
            dense.cost,
            dense.moved_bytes,
            next(iter(ctx.lasting_objections(whole)), ""),
        ),
    ]


def _times(cost: Cost, count: int) -> Cost:
    """Return the cost of so many."""
    macs = None if cost.macs is None else cost.macs * count
    return Cost(macs, cost.weight_bytes * count, cost.convolutions * count)


def with_channels(dims: Dims | None, channels: int) -> Dims | None:
    """Return a shape with another number of channels."""
    return None if dims is None else (dims[0], channels, *dims[2:])


def elements(dims: Dims | None) -> int:
    """Return the elements of one sample; 0 where an extent is not known."""
    known = [d for d in (dims or ())[1:] if isinstance(d, int)]
    return math.prod(known) if dims is not None and len(known) == len(dims) - 1 else 0
