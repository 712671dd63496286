"""How far a channel may go beyond what few samples have shown of it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from npuconv.quant.statistics import Statistics

    Doubles = NDArray[np.float64]

OUTLOOK = 3.0  # times as many samples, of which the extremes are foreseen
_FEW = 3  # samples, below which nothing is foreseen
_SILENT = 0.02  # of a channel's reach: samples in which it reaches less far are all alike
ENOUGH = 300.0  # independent values after which half of a channel's range is believed
_LEAST = 0.02


def unseen(stats: Statistics) -> Doubles:
    """How little was seen of each channel [C]: 1 for nothing, towards 0 for all there is.

    Values of one sample go along with each other, so those of a map count as the length of
    its side; of a channel that is silent in most places, as that of the part where it is not.
    """
    each = stats.count / max(stats.samples, 1) * _active(stats)
    return np.asarray(1 / (1 + stats.samples * np.sqrt(each) / ENOUGH), np.float64)


def _active(stats: Statistics) -> Doubles:
    """The share of a channel's values [C] that are not silent beside the largest of them."""
    if not stats.values.size:
        return np.ones(stats.channels)
    least = _SILENT * np.maximum(-stats.lows, stats.highs)
    return np.asarray((np.abs(stats.values) > least[:, None]).mean(axis=1), np.float64)


def widened(
    stats: Statistics,
    families: Sequence[int] = (),
    outlook: float = 1.0,
    *,
    shown: bool = False,
) -> tuple[Doubles, Doubles]:
    """Extremes with a margin where a channel was seen too little.

    A channel that was seen seldom gets part of the range of the others that were made with
    it: clipping a large value costs more than coarse steps do. That goes for each end: a
    logit that was negative in all samples is the class that none of them was of.

    Args:
        stats: of the tensor.
        families: a number for each channel, equal for those that one layer makes; all are
            of one family where they are not given.
        outlook: the extremes are those of so many times as many samples, as far as the
            difference between samples foretells them.
        shown: whether outputs show the tensor. Then the largest of a family is foreseen as
            well: the logit of a sample that is surer than all before must not be cut off.

    Returns:
        float64 lows and highs [C]; an end at 0, where an activation cuts all of them off,
        stays.
    """
    ends = -stats.lows.astype(np.float64), stats.highs.astype(np.float64)
    lows, highs = ends
    seen = _reaches(-stats.values, stats), _reaches(stats.values, stats)
    if outlook > 1:
        lows = lows * _growth(seen[0], stats.samples, outlook)
        highs = highs * _growth(seen[1], stats.samples, outlook)
    weight = unseen(stats)
    if weight.max(initial=0.0) < _LEAST or stats.channels == 1:
        return -lows, highs
    which = np.unique(families or np.zeros(stats.channels), return_inverse=True)[1]
    least = _SILENT * np.maximum(*ends)
    samples = stats.samples if shown and outlook == 1 else 0
    below, above = (
        _farthest(*pair, which, samples) for pair in zip((lows, highs), seen, strict=True)
    )
    return -_towards(lows, least, below, weight), _towards(highs, least, above, weight)


def _towards(reach: Doubles, least: Doubles, most: Doubles, weight: Doubles) -> Doubles:
    """Part of the way, in the logarithm, to the largest of the family.

    An end that a channel does not reach at all counts as ``least``, if others reach it.
    """
    live = np.maximum(reach, least)
    wide = np.maximum(live, 1e-30) ** (1 - weight) * most**weight
    inside = np.clip(wide, reach, np.maximum(most, reach))  # powers are not exact
    return np.where(most > 0, inside, reach)


def _farthest(reach: Doubles, seen: Doubles, which: NDArray[np.intp], samples: int) -> Doubles:
    """How far any channel of its family may reach, for each channel [C].

    The largest that few samples have shown is the largest of few numbers, too. With 0 samples
    nothing is foreseen.
    """
    most, each = np.zeros(int(which.max()) + 1), np.zeros((int(which.max()) + 1, seen.shape[1]))
    np.maximum.at(most, which, reach)
    np.maximum.at(each, which, seen)
    return np.asarray((most * _growth(each, samples, OUTLOOK))[which], np.float64)


def _reaches(values: NDArray[np.float32], stats: Statistics) -> Doubles:
    """How far each channel reaches in every sample of which values are kept [C, samples]."""
    if not values.size:
        return np.zeros((stats.channels, 0))
    starts = np.cumsum(stats.widths) - stats.widths
    return np.maximum.reduceat(values, starts, axis=1).astype(np.float64)


def _growth(reach: Doubles, samples: int, outlook: float) -> Doubles:
    """What the largest of each row grows by with more samples [K], at least 1.

    The logarithm of how far a sample reaches is taken for normal.

    Args:
        reach: of samples, those of which values are kept [K, kept].
        samples: how many there were.
        outlook: the extremes are those of so many times as many.
    """
    if reach.shape[1] < _FEW or samples < _FEW:
        return np.ones(len(reach))
    most = np.maximum(reach.max(axis=1, keepdims=True), 1e-30)
    deviation = np.log(np.maximum(reach / most, _SILENT)).std(axis=1)
    rise = _largest(outlook * samples) - _largest(samples)
    return np.asarray(np.exp(rise * deviation), np.float64)


def _largest(count: float) -> float:
    """About the largest of so many standard normal numbers, three or more.

    The location of the limiting Gumbel distribution (H. Cramer, "Mathematical Methods of
    Statistics", 1946, 28.6).
    """
    root = math.sqrt(2 * math.log(count))
    return root - (math.log(math.log(count)) + math.log(4 * math.pi)) / (2 * root)
