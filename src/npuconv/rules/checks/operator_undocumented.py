"""The target does not mention an operator.

What it checks:
    Every node whose operator the target does not list, where the target calls such
    operators undocumented.

Why it matters:
    "Not documented" is not "not supported": the node is run in float on the host,
    which costs time and crossings, and the device may well be able to do it.

How to fix:
    Ask the vendor, and list the operator in the target file.
"""

from __future__ import annotations

from npuconv.model import Node, query
from npuconv.rules import (
    HOST_DOMAINS,
    RuleContext,
    Severity,
    Violation,
    Violations,
    after_conv,
    rule,
)


@rule(
    "OPS001",
    severity=Severity.NOTE,
    ops={"*"},
    message="target {target} says nothing of {op}: it runs on the host",
    fires=after_conv("y = Sigmoid (c)"),
    silent=after_conv("y = Relu (c)"),
)
def operator_undocumented(node: Node, ctx: RuleContext) -> Violations:
    if ctx.target.unlisted_operators != "undocumented" or ctx.covers(node):
        return
    if not query.is_standard(node) and node.domain not in HOST_DOMAINS:
        return
    yield Violation(
        {"op": query.qualified(node), "target": ctx.target.name},
        value=query.qualified(node),
        source=f"{ctx.target.name}: unlisted_operators",
    )
