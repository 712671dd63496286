"""The convolution leaves its padding to be worked out at run time.

What it checks:
    The attribute `auto_pad` against the target's.

Why it matters:
    The device needs numbers: SAME and VALID mean different pads for different input
    extents, and tools have disagreed about them for years.

How to fix:
    Nothing where the finding is rewritten: the pads are numbers then. Where it remains,
    another error keeps them from being written; repair that first, or write `pads` on
    export. A missing extent is dynamic-dimension, which names the --input-shape to give.
"""

from __future__ import annotations

from npuconv.model import Node
from npuconv.rules import SLIDING, RuleContext, Violations, conv, rule
from npuconv.rules.target_limits import missing_axis


@rule(
    "SHP003",
    ops=SLIDING,
    limits=("auto_pad",),
    message="auto_pad is {value}; the device takes {limit}",
    fires=conv('auto_pad = "SAME_UPPER"'),
    silent=conv("pads = [1, 1, 1, 1]"),
)
def auto_pad_unsupported(node: Node, ctx: RuleContext) -> Violations:
    if missing_axis(node, ctx) is None:  # else dynamic-dimension reports it
        yield from ctx.violations(node, "auto_pad")
