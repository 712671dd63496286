"""The int8 model is too far from the float model.

What it checks:
    The SQNR of all outputs together, measured on samples that were kept from
    calibration where there are enough of them. Below what `--min-sqnr` asks for it is
    an error. Where nothing is asked for, below 15 dB is a warning. An output that is
    infinite or NaN is a warning too if the same output of the float model is finite.

Why it matters:
    At 15 dB the noise has 3 % of the power of the signal: classes change, and boxes
    move.

How to fix:
    Give more calibration samples, normalized as in training (CAL001). Then try
    `--pad-on-host all`, `--max-extra-macs 10`, and `--keep-float NODE` for the layers
    with the largest share of the noise.
"""

from __future__ import annotations

from npuconv.model import Model
from npuconv.rules import RuleContext, Severity, Violation, Violations, conv, rule

POOR_DB = 15.0  # SQNR; the noise has 3 % of the power of the signal


@rule(
    "CAL005",
    message="{measured} SQNR against the float model, on {samples} samples; {wanted}",
    severity=Severity.WARNING,
    stage="measured",
    fires="""
        input x: float[N,1,8,8]
        weight w: float[1,1,1,1] = 1.001
        a = Conv (x, w)
        y = Sub (a, x)
    """,
    silent=conv(x="N,1,8,8", w="1,1,1,1", weights="1.001"),
)
def accuracy_too_low(_model: Model, ctx: RuleContext) -> Violations:
    accuracy, goal = ctx.accuracy, ctx.options.min_sqnr
    if accuracy is None or (accuracy.sqnr_db is None and accuracy.cosine is not None):
        return  # nothing differs
    if goal is None and accuracy.sqnr_db is None and not ctx.broken:
        return
    minimum = POOR_DB if goal is None else goal
    if accuracy.sqnr_db is not None and accuracy.sqnr_db >= minimum:
        return
    value = "no" if accuracy.sqnr_db is None else f"{accuracy.sqnr_db:.1f} dB"
    limit = f"{minimum:g} dB"
    bound = f"below {limit} is poor" if goal is None else f"--min-sqnr asks for {limit}"
    if ctx.broken:
        names = ", ".join(map(repr, ctx.broken))
        bound = f"not finite, as the float model's are: {names}"
    samples = accuracy.samples - accuracy.uncompared
    yield Violation(
        {"measured": value, "samples": samples, "wanted": bound},
        value=value,
        limit=f"at least {limit}",
        severity=None if goal is None else Severity.ERROR,
    )
