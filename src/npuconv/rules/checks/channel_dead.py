"""Channels of a convolution never leave one value.

What it checks:
    Channels of the output of a convolution, after its activation, that do not change in
    calibration. A tenth of the channels is a note, half of them a warning.

Why it matters:
    Such channels cost time and carry no information. Training may have switched them
    off. If they are many, the samples probably differ from the training data: they are
    normalized in another way, or too similar. Then their ranges are wrong.

How to fix:
    Look at CAL001, and calibrate on samples that differ. If the channels are dead on
    every input, prune them before export.
"""

from __future__ import annotations

from npuconv.model import Model, query
from npuconv.rules import RuleContext, Severity, Violation, Violations, rule

WARNING_SHARE = 0.5  # share of channels; training may have switched fewer off
NOTE_SHARE = 0.1  # share of channels; fewer are common


@rule(
    "CAL003",
    severity=Severity.WARNING,
    stage="calibrated",
    message="{count} of {channels} channels ({share}) have one and the same value in all "
    "{samples} samples",
    model="""
        input x: float[N,1,8,8]
        weight w: float[3,1,1,1] = 1
        weight b: float[3] = 0, {}
        a = Conv (x, w, b)
        y = Relu (a)
    """,
    fires="-5, -6",
    silent="5, 0.1",
)
def channel_dead(_model: Model, ctx: RuleContext) -> Violations:
    if (evidence := ctx.evidence) is None or evidence.samples < 2:
        return
    for conv in evidence.plan.convolutions:
        output = conv.outputs[0]
        stats, consumers = evidence.statistics.get(output.name), query.consumers(output)
        if len(consumers) == 1 and consumers[0].op in ("Relu", "Clip"):
            stats = evidence.statistics.get(consumers[0].outputs[0].name, stats)
        count = 0 if stats is None else int((stats.lows == stats.highs).sum())
        if stats is None or stats.channels < 2 or count < NOTE_SHARE * stats.channels:
            continue
        share = count / stats.channels
        yield Violation(
            {
                "count": count,
                "channels": stats.channels,
                "share": f"{100 * share:.0f} %",
                "samples": evidence.samples,
            },
            value=f"{count} of {stats.channels}",
            limit="0",
            node=conv,
            severity=None if share >= WARNING_SHARE else Severity.NOTE,
        )
