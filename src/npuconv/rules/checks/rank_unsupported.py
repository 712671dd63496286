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
    report has the reason under "not rewritten".
"""

from __future__ import annotations

from npuconv.model import Node, window
from npuconv.model.axis_removal import obstacles, offer
from npuconv.records import replace
from npuconv.rules import CONV, SLIDING, RuleContext, Violations, conv, rule

_SLICES = (
    "Add `--prefer slices`, which makes the taps along one axis channels of a 2D convolution with"
    " as many MACs. Or use a model whose layers are 2D."
)


@rule(
    "SHP001",
    ops=SLIDING,
    limits=("rank",),
    message="{op} of rank {value}; the device takes rank {limit}",
    fires=conv(x="1,3,8,8,8", w="4,3,3,3,3"),
    silent=CONV,
)
def rank_unsupported(node: Node, ctx: RuleContext) -> Violations:
    for violation in ctx.violations(node, "rank"):
        win = window(node)
        fixed_axes = [] if win is None else obstacles(win)
        if win is None or not fixed_axes:
            yield violation
            continue
        offered = "" if "slices" in ctx.options.prefer else offer(win)
        reasons = "; ".join(filter(None, [*fixed_axes, offered]))
        limit = f"{violation.values['limit']}, and no axis can be removed: {reasons}"
        fix = _SLICES if offered else violation.fix
        yield replace(violation, values={**violation.values, "limit": limit}, fix=fix)
