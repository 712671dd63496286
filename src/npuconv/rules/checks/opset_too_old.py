"""The model's operators are older than int8 operators.

What it checks:
    That the opset is at least 14, the first in which all operators that are used on int8
    tensors take them.

Why it matters:
    One file has one opset. If a single node cannot be raised to it, the int8 operators
    cannot be written at all.

How to fix:
    Nothing, if every node can be raised: that is done. If one cannot, export the model
    with a newer opset, or replace that operator.
"""

from __future__ import annotations

from npuconv.model import Model
from npuconv.rules import CONV, RuleContext, Violation, Violations, rule
from npuconv.version import OLDEST_OPSET


@rule(
    "MDL003",
    message="opset {opset} is older than {minimum}, whose operators all take int8{obstacle}",
    model=f"opset {{}}\n{CONV}",
    fires="13",
    silent="14",
)
def opset_too_old(model: Model, ctx: RuleContext) -> Violations:
    if model.opset >= OLDEST_OPSET:
        return
    obstacle = f"; it cannot be raised over {ctx.opset_obstacle}" if ctx.opset_obstacle else ""
    yield Violation(
        {"opset": model.opset, "minimum": OLDEST_OPSET, "obstacle": obstacle},
        value=str(model.opset),
        limit=f"at least {OLDEST_OPSET}",
    )
