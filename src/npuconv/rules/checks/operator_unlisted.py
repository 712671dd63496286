"""The target forbids operators it does not list.

What it checks:
    Every node whose operator the target does not list, if the target has
    `unlisted_operators: error`.

Why it matters:
    Such a device has no host beside it: an operator that it cannot run cannot be run at all.

How to fix:
    Replace the operator, cut the model before it, or list it in the target file.
"""

from __future__ import annotations

from npuconv.model import Node, query
from npuconv.rules import CONV, RuleContext, Violation, Violations, after_conv, rule


@rule(
    "OPS006",
    ops={"*"},
    message="{op} is not listed by target {target}, which forbids that",
    fires=after_conv("y = Sigmoid (c)"),
    silent=CONV,
    device="""
        unlisted_operators: error
        operators: {Conv: {}}
    """,
)
def operator_unlisted(node: Node, ctx: RuleContext) -> Violations:
    if ctx.target.unlisted_operators != "error" or ctx.covers(node):
        return
    yield Violation(
        {"op": query.qualified(node), "target": ctx.target.name},
        value=query.qualified(node),
        source=f"{ctx.target.name}: unlisted_operators",
    )
