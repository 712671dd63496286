"""Limits of a target on the rank of a convolution."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from npuconv.legalize.context import PassContext
    from npuconv.model.conv import Window


def refuses_rank(ctx: PassContext, win: Window) -> bool:
    """Return whether a known limit of the target's Conv excludes the rank of this one."""
    conv = ctx.target.operator("Conv")
    if conv is None or win.axes is None:
        return False
    rank = conv.limits_for(win.mode).get("rank")
    return rank is not None and rank.allows(win.axes + 2, {}) is False
