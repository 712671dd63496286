"""The calibration samples do not look like what the model was trained on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.model import query
from npuconv.rules import Example, Violation
from npuconv.rules._calibrated import calibrated_rule

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node
    from npuconv.rules._seen import Seen
    from npuconv.samples.normalizations import Normalization

FEWEST = 8  # channels of the first layer; fewer say too little


@calibrated_rule(
    "CAL001",
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
def normalization_implausible(model: Model, seen: Seen) -> Iterator[Violation]:
    """The calibration samples do not look like what the model was trained on.

    What it checks:
        Where a BatchNormalization follows the first convolution, the means and standard
        deviations of its channels against those of training, which it holds. For
        images also a few samples in the other usual normalizations: the model must not
        behave markedly better on those. Then channels take both signs more often, lie
        less beside 0, and the first layer's biases are of the size of what it puts out.

    Why it matters:
        Ranges measured on such samples are wrong, and so are the int8 model's results: a
        wrong mean or standard deviation costs as much accuracy as no calibration data.

    How to fix:
        Feed the samples as in training: for images give `--preprocess` or `--mean` and
        `--std`, for arrays normalize them before they are saved. If they are right,
        add `--ignore CAL001`.
    """
    del model
    if seen.synthetic or seen.first is None:
        return
    weight = query.shape(seen.first.inputs[1])
    if weight is None or not isinstance(weight[0], int) or weight[0] < FEWEST:
        return
    violation = _against_training(seen, seen.first) or _against_trials(seen, seen.first)
    if violation:
        yield violation


def _against_training(seen: Seen, first: Node) -> Violation | None:
    from npuconv.rules._training import WRONG, compare

    gaps = compare(seen.statistics, seen.expected)
    found = gaps.get(first.outputs[0].name)
    if found is None or found.loss < WRONG or not found.consistent:
        return None
    evidence = (
        f"BatchNormalization says that the standard deviation of what the first layer puts "
        f"out was {1 / found.ratio:.3g} times this in training, and its means are "
        f"{found.offset:.1f} standard deviations off"
    )
    return Violation(
        {"evidence": evidence, "claim": _claim(seen, _scaled(seen, found.ratio))},
        value=f"standard deviation x {found.ratio:.3g}, mean off by {found.offset:.2g}",
        limit="standard deviation x 1, mean off by 0",
        node=first,
    )


def _against_trials(seen: Seen, first: Node) -> Violation | None:
    from npuconv.rules._better import alike, better

    found = better(seen.trials) if seen.trials else None
    if found is None or seen.trials is None:
        return None
    tried, reason = found
    names = alike(seen.trials.given, tried)
    return Violation(
        {"evidence": reason, "claim": _claim(seen, names)},
        value=seen.trials.given.name,
        limit=" or ".join(item.name for item in names),
        node=first,
    )


def _scaled(seen: Seen, ratio: float) -> list[Normalization]:
    """Normalizations whose scale differs from that of the samples as training's does."""
    from npuconv.rules._better import better, scaled

    if seen.trials is None:
        return []
    names = scaled(seen.trials.given, ratio)
    behaving = better(seen.trials)
    return [name for name in names if behaving and name in behaving[0]] or names


def _claim(seen: Seen, names: list[Normalization]) -> str:
    """Return the fault as text, with the normalizations that would fit, if known."""
    if seen.trials is None or not names:
        return "the calibration samples are not normalized like those of training"
    shown = " or ".join(f"{item.name} ({item.option})" for item in names)
    given = seen.trials.given.name
    return f"the calibration samples look like {given}, the model as if trained on {shown}"
