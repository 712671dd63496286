"""An operator that neither onnxruntime nor the model defines.

What it checks:
    The domain of every operator: ONNX's own, a domain of onnxruntime, or a
    domain for which the model contains a function.

Why it matters:
    A model that cannot be run cannot be calibrated or compared, so the accuracy of the
    result would be unknown.

How to fix:
    Export the model without custom operators, or cut it before the node.
"""

from __future__ import annotations

from npuconv.model import Node, query
from npuconv.rules import HOST_DOMAINS, RuleContext, Violation, Violations, after_conv, rule


@rule(
    "OPS002",
    ops={"*"},
    message="{op} belongs to {domain}, which no runtime here runs",
    fires=after_conv("y = org.example.Mystery (c)"),
    silent=after_conv("y = Relu (c)"),
)
def operator_unknown(node: Node, ctx: RuleContext) -> Violations:
    if query.is_standard(node) or node.domain in HOST_DOMAINS:
        return
    if any((f.domain, f.name) == (node.domain, node.op) for f in ctx.model.graph.functions):
        return
    yield Violation({"op": node.op, "domain": f"domain {node.domain!r}"}, value=node.domain)
