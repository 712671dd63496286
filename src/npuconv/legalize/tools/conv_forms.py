"""The forms a convolution of several groups can take where the target refuses the groups."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from npuconv.legalize.forms import Form
from npuconv.model.facts import of_window
from npuconv.partition.costs import Cost

if TYPE_CHECKING:
    from npuconv.legalize.context import PassContext
    from npuconv.model.conv import Window

MOST_PARTS = 256  # more convolutions than that for one are no answer


def refuses_group(ctx: PassContext, win: Window) -> bool:
    """Return whether the target refuses the groups of a convolution."""
    operator = ctx.target.operator("Conv")
    if operator is None:
        return False
    facts = of_window(win)
    limits = operator.limits_for(win.mode)
    about = ("group", "mode", "channel_multiplier")
    return any(limits[n].allows(facts.get(n), facts) is False for n in about if n in limits)


def group_forms(ctx: PassContext, win: Window) -> list[Form]:
    """Split and dense, each with its cost and what the target says against it."""
    return [_split(ctx, win), _dense(ctx, win)]


def objections(ctx: PassContext, win: Window) -> list[str]:
    """Return the objections to a convolution that rewriting its groups does not remove."""
    if win.group < 2 or not refuses_group(ctx, win):
        return ctx.objections(win)
    forms = group_forms(ctx, win)
    return [] if any(not f.obstacle for f in forms) else [f.obstacle for f in forms]


def _split(ctx: PassContext, win: Window) -> Form:
    """One convolution for each group; what it reads and makes is moved."""
    one = _part(win)
    objections = ctx.objections(one)
    if win.group > MOST_PARTS:
        objections.append(f"it would take {win.group} convolutions")
    cost = Cost(win.macs, win.parameters(), win.group)
    return Form("split", cost, _cells(win.input) + _cells(win.output), _first(objections))


def _dense(ctx: PassContext, win: Window) -> Form:
    """One convolution over all channels."""
    assert win.weight is not None
    whole = replace(
        win, group=1, weight=(win.weight[0], win.weight[1] * win.group, *win.weight[2:])
    )
    cost = Cost(whole.macs, whole.parameters(), 1)
    return Form("dense", cost, 0, _first(ctx.objections(whole)))


def _part(win: Window) -> Window:
    assert win.weight is not None
    outputs = win.weight[0] // win.group
    return replace(
        win,
        group=1,
        weight=(outputs, *win.weight[1:]),
        input=_with_channels(win.input, win.weight[1]),
        output=_with_channels(win.output, outputs),
    )


def _with_channels(
    dims: tuple[int | str | None, ...] | None, channels: int
) -> tuple[int | str | None, ...] | None:
    return None if dims is None else (dims[0], channels, *dims[2:])


def _cells(dims: tuple[int | str | None, ...] | None) -> int:
    """Elements of one sample; 0 where an extent is not known."""
    known = [d for d in (dims or ())[1:] if isinstance(d, int)]
    return math.prod(known) if dims is not None and len(known) == len(dims) - 1 else 0


def _first(texts: list[str]) -> str:
    return texts[0] if texts else ""


def refuses_rank(ctx: PassContext, win: Window) -> bool:
    """Return whether a known limit of the target's Conv excludes the rank of this one."""
    conv = ctx.target.operator("Conv")
    if conv is None or win.axes is None:
        return False
    rank = conv.limits_for(win.mode).get("rank")
    return rank is not None and rank.allows(win.axes + 2, {}) is False
