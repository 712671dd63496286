"""The written model is of another opset than asked for.

What it checks:
    That every operator could be converted to the opset of `--opset` (default: the opset of
    the target, else 21), once it is known where every node runs.

Why it matters:
    A runtime that reads opsets up to a number refuses a newer file. An older one may be
    refused as well: ONNX's reference evaluator takes int8 conversions from opset 19 on.

How to fix:
    Give the opset that the model has as `--opset`, if your runtime reads it. Or replace
    the operator that stands in the way, or export the model with the opset you need.
"""

from __future__ import annotations

from npuconv.model import Model
from npuconv.rules import RuleContext, Severity, Violation, Violations, after_conv, rule


@rule(
    "MDL006",
    severity=Severity.WARNING,
    stage="planned",
    message="the model is written in opset {opset}, not {wanted}{obstacle}",
    fires=f"opset 24\n{after_conv('y = Swish (c)')}",
    silent=f"opset 21\n{after_conv('y = Relu (c)')}",
)
def opset_not_reached(model: Model, ctx: RuleContext) -> Violations:
    target = ctx.options.opset
    if model.opset == target:
        return
    newer = "operators of it do not exist in the older one" if model.opset > target else ""
    obstacle = f": {text}" if (text := ctx.opset_obstacle or newer) else ""
    values = {"opset": model.opset, "wanted": target, "obstacle": obstacle}
    yield Violation(values, value=str(model.opset), limit=str(target))
