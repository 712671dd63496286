"""The int8 model is too far from the float model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.diagnostics import Severity
from npuconv.rules import Example, Violation, rule

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.rules._context import RuleContext

POOR_DB = 15.0  # below this, what comes out is mostly noise to a user


@rule(
    "CAL005",
    message="{measured} SQNR against the float model, on {samples} samples; {wanted}",
    severity=Severity.WARNING,
    at="measured",
    example=Example(
        fires="""
            input x: float[N,1,8,8]
            weight w: float[1,1,1,1] = 1.001
            a = Conv (x, w)
            y = Sub (a, x)
        """,
        silent="""
            input x: float[N,1,8,8]
            weight w: float[1,1,1,1] = 1.001
            y = Conv (x, w)
        """,
    ),
)
def accuracy_too_low(model: Model, ctx: RuleContext) -> Iterator[Violation]:
    """The int8 model is too far from the float model.

    What it checks:
        The SQNR of all outputs together, measured on samples that were kept from
        calibration where there are enough of them. Below what `--min-sqnr` asks for it is
        an error. Where nothing is asked for, below 15 dB is a warning, and so is an output
        that is infinite or no number, where that of the float model is finite.

    Why it matters:
        At 15 dB the noise has 3 % of the power of the signal: classes change, and boxes
        move. A conversion that ends well must not hide that.

    How to fix:
        Give more calibration samples, and look at CAL001 whether they are normalized as
        in training. Let the host pad what the device makes (`--pad-on-host all`), let layers
        run several times (`--max-extra-macs`), or keep those with the largest share of the
        noise on the host (`--keep-float`).
    """
    del model
    seen, goal = ctx.measured, ctx.options.min_sqnr
    if seen is None or seen.is_exact:
        return
    if goal is None and seen.sqnr_db is None and not seen.broken:
        return
    least = POOR_DB if goal is None else goal
    if seen.sqnr_db is not None and seen.sqnr_db >= least:
        return
    value = "no" if seen.sqnr_db is None else f"{seen.sqnr_db:.1f} dB"
    limit = f"{least:g} dB"
    wanted = f"below {limit} is poor" if goal is None else f"--min-sqnr asks for {limit}"
    if seen.broken:
        names = ", ".join(map(repr, seen.broken))
        wanted = f"not finite, as the float model's are: {names}"
    yield Violation(
        {"measured": value, "samples": seen.samples, "wanted": wanted},
        value=value,
        limit=f"at least {limit}",
        severity=None if goal is None else Severity.ERROR,
    )
