"""The model depends on limits that are undocumented.

What it checks:
    Every limit that the target marks `?`, with the values this model needs of it. The
    finding names the node with the largest.

Why it matters:
    The model may or may not run on the device. The list of values is the question to the
    vendor.

How to fix:
    Ask the vendor if the values are within the limit, and write the answer into the
    target file. `--unknown fail`, or `pass`, decides meanwhile.
"""

from __future__ import annotations

from npuconv.amounts import count
from npuconv.findings import Status
from npuconv.model import Model
from npuconv.rules import CONV, RuleContext, Severity, Violation, Violations, rule
from npuconv.rules.target_limits import needs


@rule(
    "OPS005",
    severity=Severity.WARNING,
    message="the limit of {limit} is not known; the model needs {values} ({nodes})",
    fires=CONV,
    silent=CONV,
    device='operators: {Conv: {limits: {kernel_h: "?"}}}',
    silent_device="operators: {Conv: {limits: {kernel_h: {max: 7}}}}",
)
def limit_unknown(_model: Model, ctx: RuleContext) -> Violations:
    for need in needs(ctx):
        yield Violation(
            {"limit": need.name, "values": need.text, "nodes": count(need.nodes, "node")},
            value=need.text,
            limit="?",
            source=need.limit.cite(),
            node=need.example,
            status=Status.UNKNOWN,
        )
