"""An operator beyond the limits of the device, without a host to run it.

What it checks:
    As operator-beyond-limits, if the target has `unlisted_operators: error`.

Why it matters:
    Such a device has no host beside it: an operator that it cannot run cannot be run at all.

How to fix:
    Change the named attribute, cut the model before the node, or write
    `unlisted_operators: host` in the target file if there is a host after all.
"""

from __future__ import annotations

from npuconv.model import Node
from npuconv.rules import RuleContext, Violations, rule


@rule(
    "OPS008",
    ops={"*"},
    message="{problem}, and target {target} has no host",
    model="""
        input x: float[1,3,8,8]
        y = MaxPool <kernel_shape = [{}]> (x)
    """,
    fires="3, 3",
    silent="2, 2",
    device="""
        unlisted_operators: error
        operators: {MaxPool: {limits: {kernel_h: {max: 2}}}}
    """,
)
def no_host_for_operator(node: Node, ctx: RuleContext) -> Violations:
    if ctx.target.unlisted_operators == "error":
        yield from ctx.beyond_listed(node)
