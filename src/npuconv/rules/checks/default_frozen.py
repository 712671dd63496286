"""An input that has a default is written as a constant.

What it checks:
    That no input of the model is an initializer as well, which since IR version 4 is a
    default that a caller may override. Parameters of layers do not count. Files of old
    exporters, which list all initializers among the inputs, do not count either.

Why it matters:
    The int8 model is calibrated and measured with the default, so the value is folded and
    the input goes. A program that feeds it ends with `Invalid input name`.

How to fix:
    Remove its initializer if callers feed the input, else remove the input.
"""

from __future__ import annotations

from npuconv.model import Model
from npuconv.rules import CONV, RuleContext, Severity, Violation, Violations, rule


@rule(
    "MDL007",
    severity=Severity.WARNING,
    message="the input {name!r} has a default, and becomes a constant of that value",
    fires="""
        input x: float[1,3,8,8]
        input k: float[1]
        weight k: float[1] = 2
        weight w: float[4,3,3,3]
        c = Conv (x, w)
        y = Mul (c, k)
    """,
    silent=CONV,
)
def default_frozen(model: Model, _ctx: RuleContext) -> Violations:
    for name in model.header.defaults:
        yield Violation({"name": name}, value=name, limit="an input or an initializer")
