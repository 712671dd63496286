"""The calibration samples are not normalized as in training.

What it checks:
    Where a BatchNormalization follows the first convolution, the means and standard
    deviations of its channels against the statistics of training, which it holds. For
    images also the normalization that the samples seem to have against the normalization
    that a conversion without samples infers from the model: from its metadata, the
    arithmetic on its input, the biases of the first layer and the habits of its
    framework. It must not be twelve times likelier.

Why it matters:
    Ranges measured on such samples are wrong, which makes the int8 model's results wrong:
    a wrong mean or standard deviation costs as much accuracy as no calibration data.

How to fix:
    Feed the samples as in training: for images give `--preprocess` or `--mean` and
    `--std`, for arrays normalize them before they are saved. If they are right,
    add `--ignore CAL001`.
"""

from __future__ import annotations

from npuconv.model import Model
from npuconv.rules import RuleContext, Severity, Violations, rule


@rule(
    "CAL001",
    severity=Severity.WARNING,
    stage="calibrated",
    message="{claim}: {evidence}",
    fires="""
        input x: float[N,3,8,8]
        weight w: float[8,3,3,3] = 1
        weight scale: float[8]
        weight shift: float[8]
        weight mean: float[8] = 3442.5
        weight var: float[8] = 147852
        a = Conv (x, w)
        y = BatchNormalization (a, scale, shift, mean, var)
    """,
    silent="""
        input x: float[N,3,8,8]
        weight w: float[8,3,3,3] = 1
        weight scale: float[8]
        weight shift: float[8]
        weight mean: float[8] = 13.5
        weight var: float[8] = 2.27
        a = Conv (x, w)
        y = BatchNormalization (a, scale, shift, mean, var)
    """,
)
def normalization_implausible(_model: Model, ctx: RuleContext) -> Violations:
    if ctx.evidence is not None and ctx.evidence.mismatch is not None:
        yield ctx.evidence.mismatch
