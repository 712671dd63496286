"""Ways to choose all ranges, and which of them is best on samples that were kept apart.

Clipping a few values for the sake of finer steps pays in some models and ruins others, and
so does leaving room for what the samples have not shown. Nothing local tells which.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from npuconv.tuning.noise.twin import roundings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from npuconv.model.core import Model
    from npuconv.plan import Plan
    from npuconv.quant.layer import Rounded
    from npuconv.tuning.noise.whole import Judge, Noise
    from npuconv.tuning.scales.encodings import Encodings


class Candidate(NamedTuple):
    """A way to choose ranges.

    Attributes:
        method: as ``scales.encode`` takes it.
        roomy: whether there is room for what more samples would show.
    """

    method: str
    roomy: bool


# The first is taken unless another is clearly better.
CANDIDATES = (
    Candidate("auto", roomy=False),
    Candidate("auto", roomy=True),
    Candidate("cautious", roomy=False),
)
_CLEARLY = 0.8  # of its noise, or less, is left: 1 dB, which chance alone rarely brings
# Room costs a dB or two where it is not needed, and saves up to 20 where it is: on samples
# unlike all that are there, which those kept apart mostly are not. So it is taken where it
# does no harm to these, and where so little noise is left that nobody would miss the steps:
# it has an amplitude of 1/80 of that of the outputs.
_NO_HARM = 1.0
PLENTY_DB = 38.0


@dataclass(frozen=True)
class Tried:
    """What a candidate comes to.

    Attributes:
        encodings: of every int8 tensor.
        rounded: weights for them, by node name, where they are not just the nearest.
        labels: how the weights were rounded, by node name.
        roomy: whether it has room beyond the extremes.
        method: how ranges were chosen, as ``scales.encode`` takes it.
    """

    encodings: Encodings
    rounded: Mapping[str, Rounded] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    roomy: bool = False
    method: str = "auto"


@dataclass(frozen=True)
class Trial:
    """A candidate whose weights have not been rounded: that takes most of the time.

    Attributes:
        encodings: of every int8 tensor.
        finish: rounds the weights for them.
        roomy: whether it has room beyond the extremes.
        bare: the noise of its activations, where it is known.
    """

    encodings: Encodings
    finish: Callable[[], Tried]
    roomy: bool = False
    bare: Noise | None = None


def best(model: Model, plan: Plan, trials: Sequence[Trial], judge: Judge, unseen: int) -> Tried:
    """What puts least noise into the outputs, before anything saturates them.

    It takes the weights as they will be: ranges that look best with weights rounded to the
    nearest are often not those that are best once weights make up for each other. But where
    activations alone, with what weights add in the first, put in too much noise, they need
    not be rounded.

    Args:
        model: the legal float model.
        plan: where every node runs.
        trials: to choose from; the first is the one that others must beat.
        judge: of the same model, with the outputs before anything saturates them.
        unseen: how many of its samples, from the first, no range was made from. Only these can tell
            whether room is needed.
    """

    def noise(one: Trial, rounded: Mapping[str, Rounded] | None) -> Noise:
        return judge.noise(roundings(model, plan, one.encodings.by_tensor, rounded))

    chosen, least = trials[0].finish(), math.inf
    if len(trials) == 1:
        return chosen
    first, bare = noise(trials[0], chosen.rounded), trials[0].bare or noise(trials[0], None)
    for trial in trials[1:]:
        needed = min(least, _NO_HARM if trial.roomy else _CLEARLY)
        expected = noise(trial, None).plus(first, bare)
        if _left(expected, first, trial, unseen) >= needed:
            continue
        one = trial.finish()
        left = _left(noise(trial, one.rounded), first, trial, unseen)
        if left < needed:
            chosen, least = one, left
    return chosen


def _left(noise: Noise, first: Noise, trial: Trial, unseen: int) -> float:
    """What is left of the first one's noise; nothing where there is room and little noise."""
    if not trial.roomy:
        return noise.left(first)
    if (noise.sqnr_db or math.inf) >= PLENTY_DB:
        return 0.0
    return noise.first(unseen).left(first.first(unseen))
