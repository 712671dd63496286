"""The error of a small output is hidden by larger numbers beside it.

What it checks:
    The SQNR of every output, and of every tensor that a Concat puts an output together
    from, as boxes and scores of a detector. An SQNR below 15 dB that is 10 dB or
    more below the SQNR of all outputs together is a warning.

Why it matters:
    Boxes in pixels are a thousand times as large as scores. All together may have 38 dB
    while the scores have 11: the model finds the right boxes and scores them wrongly.

How to fix:
    Give samples with objects to detect; without objects all scores are near 0. Else
    add `--max-extra-macs 10`, or `--keep-float NODE` for layers before this tensor that
    have the largest share of the noise.
"""

from __future__ import annotations

from npuconv.model import Model
from npuconv.rules import RuleContext, Severity, Violation, Violations, rule
from npuconv.rules.checks.accuracy_too_low import POOR_DB

_HIDDEN_DB = 10.0  # SQNR below that of all outputs: at most a tenth of its noise shows there


@rule(
    "CAL006",
    message="{what} has {measured} SQNR, which larger numbers hide: all outputs have {whole}",
    severity=Severity.WARNING,
    stage="measured",
    fires="""
        input x: float[N,1,8,8]
        weight w: float[1,1,1,1] = 1.001
        a = Conv (x, w)
        small = Sub (a, x)
        y = Concat <axis = 1> (a, small)
    """,
    silent="""
        input x: float[N,1,8,8]
        weight w: float[1,1,1,1] = 1.001
        a = Conv (x, w)
        y = Concat <axis = 1> (a, x)
    """,
)
def noise_hidden(_model: Model, ctx: RuleContext) -> Violations:
    accuracy = ctx.accuracy
    if accuracy is None or accuracy.sqnr_db is None or accuracy.sqnr_db < POOR_DB:
        return  # accuracy-too-low reports it
    for output in accuracy.outputs:
        for row in (output, *output.parts):
            if row.sqnr_db is None or row.sqnr_db >= min(POOR_DB, accuracy.sqnr_db - _HIDDEN_DB):
                continue
            subject = f"{row.name!r}, a part of output {output.name!r},"
            if row is output:
                subject = f"output {output.name!r}"
            value, whole = f"{row.sqnr_db:.1f} dB", f"{accuracy.sqnr_db:.1f} dB"
            values = {"what": subject, "measured": value, "whole": whole}
            yield Violation(values, value=value, limit=f"at least {POOR_DB:g} dB")
