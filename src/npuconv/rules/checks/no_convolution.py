"""The model has no convolution.

What it checks:
    That there is a convolution, also inside subgraphs.

Why it matters:
    The device runs convolutions. A model without one would be written unchanged, and a
    report that calls it converted would be misleading.

How to fix:
    Check that this is the model you meant; run it on the host.
"""

from __future__ import annotations

from npuconv.model import Model, query
from npuconv.rules import CONV, RuleContext, Violation, Violations, is_convolution, rule


@rule(
    "MDL002",
    message="the model has no convolution, so nothing of it would run on {target}",
    fires="""
        input x: float[1,3,8,8]
        y = Relu (x)
    """,
    silent=CONV,
)
def no_convolution(model: Model, ctx: RuleContext) -> Violations:
    if any(is_convolution(node) for node, _ in model.walk()):
        return
    if not any(ctx.operator(node) for node in model.nodes()):
        counts = ", ".join(sorted({query.qualified(node) for node in model.nodes()}))
        yield Violation({"target": ctx.target.name}, value=counts, limit="at least one Conv")
