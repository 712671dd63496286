"""The convolution has a number of dimensions the device does not take.

What it checks:
    The rank of the input of every convolution against the target's `rank`. Of three
    spatial axes those are removed along which the kernel or the output has one cell;
    the message names the obstacle of the others.

Why it matters:
    An accelerator for images computes Conv2D only: a 1D or 3D convolution has no
    instruction.

How to fix:
    Use a model whose layers are 2D, or whose third axis has kernel 1, or kernel and
    extent that leave one cell. A 1D convolution is rewritten; if it is still here, the
    report says under "not rewritten" why.
"""

from __future__ import annotations

from dataclasses import replace

from npuconv.model.axis_removal import obstacles, offer
from npuconv.model.conv import window
from npuconv.model.types import Node
from npuconv.rules import CONV, SLIDING, Example, Violations, conv, rule
from npuconv.rules.context import RuleContext

LIMITS = ("rank",)
_DEVICE_AXES = 2  # of an accelerator for images


@rule(
    "SHP001",
    ops=SLIDING,
    limits=LIMITS,
    cacheable=True,
    message="{op} of rank {value}; the device takes rank {limit}",
    example=Example(
        fires=conv(x="1,3,8,8,8", w="4,3,3,3,3"),
        silent=CONV,
    ),
)
def rank_unsupported(node: Node, ctx: RuleContext) -> Violations:
    for violation in ctx.violations(node, *LIMITS):
        limit = f"{violation.values['limit']}{_fixed_axes(node)}"
        yield replace(violation, values={**violation.values, "limit": limit})


def _fixed_axes(node: Node) -> str:
    """Return why no axis of three or more can be removed, or ''."""
    win = window(node)
    if win is None or (win.axes or 0) <= _DEVICE_AXES:
        return ""
    kept = obstacles(win)
    return f", and no axis can be removed: {'; '.join(kept)}{offer(win)}" if kept else ""
