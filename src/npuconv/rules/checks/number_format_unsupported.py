"""The target stores numbers in a format that npuconv does not write.

What it checks:
    Types of activations, weights and bias, zero point and range of the target file
    against the format of the int8 model: int8 activations with zero point 0, int8 weights in
    -127..127, int32 bias.

Why it matters:
    A model written in other numbers than the device reads would load, run, and be
    wrong.

How to fix:
    If the device also takes int8 with zero point 0, write that into the target file.
    Otherwise npuconv cannot convert for the device yet.
"""

from __future__ import annotations

from npuconv.model import Model
from npuconv.rules import CONV, RuleContext, Violation, Violations, rule


@rule(
    "QNT003",
    message="the target wants {what} {wanted}; npuconv makes {made}",
    fires=CONV,
    silent=CONV,
    device="activations: {dtype: uint8, zero_point: [0], granularity: tensor}",
    silent_device="activations: {dtype: int8, zero_point: [0], granularity: tensor}",
)
def number_format_unsupported(_model: Model, ctx: RuleContext) -> Violations:
    target = ctx.target
    activations, weights, bias = target.activations, target.weights, target.bias
    low, high = weights.range
    formats = (
        ("activations of type", activations.dtype, "int8", activations.dtype == "int8"),
        ("a zero point of", activations.zero_point.text(), "0",
         activations.allows_zero_point(0) is not False),
        ("weights of type", weights.dtype, "int8", weights.dtype == "int8"),
        ("weights in", f"{low}..{high}", "-127..127", low <= -127 and high >= 127),
        ("a bias of type", bias.used, "int32", bias.used == "int32"),
    )  # fmt: skip
    for kind, text, written, fits in formats:
        if not fits:
            values = {"what": kind, "wanted": text, "made": written}
            yield Violation(
                values, value=written, limit=str(text), source=f"{target.name}: numbers"
            )
