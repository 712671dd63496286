"""Test for a normalization of the samples that fits the model markedly better.

The bounds were set on real models, each with the normalization it was trained for and five
others; all lie well between the values of the right and of the wrong normalizations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.samples.normalizations import CENTRED, HALF, IMAGENET, RAW, SIGNED, UNIT

if TYPE_CHECKING:
    from npuconv.rules._behaviour import Behaviour
    from npuconv.rules._seen import Trials
    from npuconv.samples.normalizations import Normalization

SMALL, LARGE = 0.05, 20.0  # of a bias beside what the first layer puts out: one does nothing
PLAUSIBLE = (0.4, 6.0)
_NEAR = 0.5  # logarithm; from 0..1 to -1..1 it is 0.7
_MANY = 1000
_NUMBERS = (RAW, CENTRED)  # pixels as they are
_UNITS = (UNIT, SIGNED, IMAGENET, HALF)

# What is worth a trial, the likelier first.
CANDIDATES: dict[Normalization, tuple[Normalization, ...]] = {
    RAW: (UNIT, SIGNED, IMAGENET),
    CENTRED: (UNIT, SIGNED, IMAGENET),
    UNIT: (SIGNED, RAW),
    HALF: (SIGNED, UNIT, RAW),
    SIGNED: (UNIT, RAW),
    IMAGENET: (RAW,),
}


def worth_trying(given: Normalization, bias: float) -> tuple[Normalization, ...]:
    """The candidates that could turn out to be better.

    Args:
        given: the normalization of the samples.
        bias: ``Behaviour.bias`` on them.
    """
    wrong = {_NUMBERS: bias > LARGE, _UNITS: bias < SMALL}
    return tuple(
        item for item in CANDIDATES[given] if _group(item) is _group(given) or wrong[_group(item)]
    )


def _group(item: Normalization) -> tuple[Normalization, ...]:
    return _NUMBERS if item in _NUMBERS else _UNITS


def better(trials: Trials) -> tuple[list[Normalization], str] | None:
    """The normalizations that the model may rather be trained for, and what says so."""
    given = trials.behaviours.get(trials.given)
    if given is None:
        return None
    found = [
        (name, reason)
        for name, other in trials.behaviours.items()
        if name != trials.given
        for reason in _reasons(trials, name, given, other)
    ]
    return ([name for name, _ in found], found[0][1]) if found else None


def scaled(given: Normalization, ratio: float) -> list[Normalization]:
    """Normalizations that make values about ``ratio`` times smaller than the given one does."""
    return [
        item
        for item in (*_NUMBERS, *_UNITS)
        if item != given and abs(math.log(_step(given) * ratio / _step(item))) < _NEAR
    ]


def alike(given: Normalization, found: list[Normalization]) -> list[Normalization]:
    """Return these normalizations, and others that the same evidence supports.

    That samples are not centred does not tell at which scale the model expects them: any
    centred normalization may be the right one.
    """
    centred = (SIGNED, IMAGENET, CENTRED)
    if given not in _UNITS or not any(item in centred for item in found):
        return found
    return [*found, *(item for item in centred if item not in found and item != given)]


def _step(item: Normalization) -> float:
    """Pixels that a difference of one stands for."""
    return sum(item.std) / len(item.std)


def _reasons(
    trials: Trials, name: Normalization, given: Behaviour, other: Behaviour
) -> Iterator[str]:
    low, high = PLAUSIBLE
    if trials.given in _NUMBERS and name in _UNITS:
        fits = low <= other.bias <= high and other.balance >= 0.9 * given.balance
        if given.bias < SMALL and fits:
            yield f"the biases of the first layer are only {given.bias:.1%} of what it puts out"
    elif trials.given in _UNITS and name in _NUMBERS:
        if given.bias > LARGE and other.bias <= high and other.balance >= 1.1 * given.balance:
            yield (
                f"the biases of the first layer are {_times(given.bias)} times as large as "
                f"the spread of what it puts out"
            )
    elif _moves(trials, name, given, other):
        yield (
            f"with these the means of channels would be smaller beside their spread, "
            f"log(1 + (mean / std)^2) {other.offset:.2f} instead of {given.offset:.2f}"
        )


def _times(number: float) -> str:
    return f"{number:.0f}" if number < _MANY else f"over {_MANY}"


def _moves(trials: Trials, name: Normalization, given: Behaviour, other: Behaviour) -> bool:
    """Return whether the samples seem shifted from those of training, rather than scaled."""
    if min(given.level, other.level) <= 0:
        return False  # the first layer makes zeros of all, and tells nothing
    gain, nearer = given.offset - other.offset, math.log(given.level / other.level)
    if name == UNIT:
        return gain > 0.0 and nearer > 0.3
    # A model that makes images need not be centred on its input.
    centred = not trials.recreates and other.bias >= PLAUSIBLE[0]
    return centred and gain > 0.05 and other.balance > given.balance and nearer > -0.15
