"""The error of a small output is hidden by larger numbers beside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.diagnostics import Severity
from npuconv.rules import Example, Violation, rule
from npuconv.rules.accuracy_too_low import POOR_DB

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.rules._context import RuleContext

_HIDDEN_DB = 10.0  # below the whole: a tenth of its share of the noise shows there, or less


@rule(
    "CAL006",
    message="{what} has {measured} SQNR, which larger numbers hide: all outputs have {whole}",
    severity=Severity.WARNING,
    at="measured",
    example=Example(
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
    ),
)
def noise_hidden(model: Model, ctx: RuleContext) -> Iterator[Violation]:
    """The error of a small output is hidden by larger numbers beside it.

    What it checks:
        The SQNR of every output, and of every tensor that a Concat puts an output together
        from, as boxes and scores of a detector. Below 15 dB, and 10 dB or more below that
        of all outputs together, is a warning.

    Why it matters:
        Boxes in pixels are a thousand times as large as scores. All together may have 38 dB
        while the scores have 11: the model finds the right boxes and does not know in which
        of them there is anything.

    How to fix:
        See the layers before this tensor: keep those with the largest share of the noise on
        the host with `--keep-float`, or let them run several times with
        `--max-extra-macs`. Where the samples show nothing that the model looks for, its
        scores are all near 0 and say little: give samples that do.
    """
    del model
    seen = ctx.measured
    if seen is None or seen.sqnr_db is None or seen.sqnr_db < POOR_DB:
        return  # accuracy-too-low speaks of it
    for one in seen.shown:
        if one.sqnr_db >= min(POOR_DB, seen.sqnr_db - _HIDDEN_DB):
            continue
        part = f"{one.name!r}, a part of output {one.output!r}," if one.output else ""
        value = f"{one.sqnr_db:.1f} dB"
        yield Violation(
            {
                "what": part or f"output {one.name!r}",
                "measured": value,
                "whole": f"{seen.sqnr_db:.1f} dB",
            },
            value=value,
            limit=f"at least {POOR_DB:g} dB",
        )
