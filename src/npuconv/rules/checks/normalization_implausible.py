"""The calibration samples are not normalized like those of training.

What it checks:
    Where a BatchNormalization follows the first convolution, the means and standard
    deviations of its channels against those of training, which it holds. For
    images also a few samples in the other usual normalizations: these must not fit the
    model markedly better. A normalization fits better if channels take both signs more
    often, their means are nearer to 0, and the first layer's biases are about as large
    as its output.

Why it matters:
    Ranges measured on such samples are wrong, and so are the int8 model's results: a
    wrong mean or standard deviation costs as much accuracy as no calibration data.

How to fix:
    Feed the samples as in training: for images give `--preprocess` or `--mean` and
    `--std`, for arrays normalize them before they are saved. If they are right,
    add `--ignore CAL001`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.findings import Severity
from npuconv.model import query
from npuconv.model.core import Model
from npuconv.model.types import Node
from npuconv.rules import Example, Violation, Violations, rule
from npuconv.rules.context import CalibrationEvidence, RuleContext

if TYPE_CHECKING:
    from npuconv.samples.normalizations import Normalization

MIN_CHANNELS = 8  # the first layer needs so many for sound statistics


@rule(
    "CAL001",
    severity=Severity.WARNING,
    at="calibrated",
    message="{claim}: {evidence}",
    example=Example(
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
    ),
)
def normalization_implausible(_model: Model, ctx: RuleContext) -> Violations:
    evidence = ctx.evidence
    if evidence is None or not evidence.is_normalized or evidence.first is None:
        return
    weight = query.shape(evidence.first.inputs[1])
    if weight is None or not isinstance(weight[0], int) or weight[0] < MIN_CHANNELS:
        return
    violation = _against_training(evidence, evidence.first) or _against_trials(
        evidence, evidence.first
    )
    if violation:
        yield violation


def _against_training(evidence: CalibrationEvidence, first: Node) -> Violation | None:
    from npuconv.rules.normalization import BOUNDS, training_shifts

    shifts = training_shifts(evidence.statistics, evidence.expected)
    shift = shifts.get(first.outputs[0].name)
    if shift is None or shift.loss < BOUNDS.shift_loss or not shift.is_uniform:
        return None
    reason = (
        f"BatchNormalization says that the standard deviation of what the first layer puts "
        f"out was {1 / shift.ratio:.3g} times this in training, and its means are "
        f"{shift.offset:.1f} standard deviations off"
    )
    return Violation(
        {"evidence": reason, "claim": _claim(evidence, _fits(evidence, shift.ratio))},
        value=f"standard deviation x {shift.ratio:.3g}, mean off by {shift.offset:.2g}",
        limit="standard deviation x 1, mean off by 0",
        node=first,
    )


def _against_trials(evidence: CalibrationEvidence, first: Node) -> Violation | None:
    from npuconv.rules.normalization import better_fits, equally_supported

    fits = better_fits(evidence.trials) if evidence.trials else None
    if fits is None or evidence.trials is None:
        return None
    tried, reason = fits
    names = equally_supported(evidence.trials.given, tried)
    return Violation(
        {"evidence": reason, "claim": _claim(evidence, names)},
        value=evidence.trials.given.name,
        limit=" or ".join(item.name for item in names),
        node=first,
    )


def _fits(evidence: CalibrationEvidence, ratio: float) -> list[Normalization]:
    """Return normalizations whose scale differs from that of the samples as training's does."""
    from npuconv.rules.normalization import better_fits, fits_by_scale

    if evidence.trials is None:
        return []
    names = fits_by_scale(evidence.trials.given, ratio)
    better = better_fits(evidence.trials)
    return [name for name in names if better and name in better[0]] or names


def _claim(evidence: CalibrationEvidence, names: list[Normalization]) -> str:
    """Return the fault as text, with the normalizations that would fit, if known."""
    if evidence.trials is None or not names:
        return "the calibration samples are not normalized like those of training"
    options = " or ".join(f"{item.name} ({item.option})" for item in names)
    current = evidence.trials.given.name
    return f"the calibration samples look like {current}, the model as if trained on {options}"
