"""No convolution of the model runs on the device.

What it checks:
    That at least one convolution runs on the device, once it is known where every node
    runs. Where the model has errors, these are reported instead.

Why it matters:
    Such a model is converted without an error and stays float: every convolution is kept
    float, an error was ignored, or there is no convolution.

How to fix:
    Check that this is the model you meant; take back the --keep-float or --ignore that
    keeps its convolutions on the host.
"""

from __future__ import annotations

from npuconv.model import Model
from npuconv.rules import CONV, RuleContext, Severity, Violation, Violations, rule


@rule(
    "MDL005",
    severity=Severity.WARNING,
    stage="planned",
    message="nothing of this model runs on {target}: all {count} nodes stay float, on the host",
    fires="""
        input x: float[1,3,8,8]
        y = Relu (x)
    """,
    silent=CONV,
)
def nothing_on_device(model: Model, ctx: RuleContext) -> Violations:
    if ctx.plan is not None and not ctx.plan.convolutions:
        count = len(model.nodes())
        yield Violation({"target": ctx.target.name, "count": count}, value="0", limit="at least 1")
