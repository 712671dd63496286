"""A relation between attributes that the device demands does not hold.

What it checks:
    The `require` relations of the target, such as "if the dilation is above 1 the
    stride must be 1". A relation that needs an unknown fact is not judged.

Why it matters:
    Chips limit combinations, not only single numbers; a table of single limits accepts
    combinations that the compiler refuses.

How to fix:
    Change one of the named attributes, or the target file if the chip can do it.
"""

from __future__ import annotations

from npuconv.model import Node, query
from npuconv.rules import RuleContext, Violations, conv, rule


@rule(
    "SHP011",
    ops=set(query.CONVOLUTIONS),
    message="{problem}",
    fires=conv("dilations = [2, 2], strides = [2, 2]", x="1,3,12,12"),
    silent=conv("dilations = [2, 2]", x="1,3,12,12"),
    device="""
        operators:
          Conv:
            require: [{if: dilation_h > 1, then: stride_h == 1}]
    """,
)
def relation_violated(node: Node, ctx: RuleContext) -> Violations:
    yield from ctx.broken_relations(node)
