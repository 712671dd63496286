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
    stats: Statistics, families: Sequence[int] = (), outlook: float = 1.0
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

    Returns:
        float64 lows and highs [C]; an end at 0, where an activation cuts all of them off,
        stays.
    """
    lows, highs = stats.lows.astype(np.float64), stats.highs.astype(np.float64)
    if outlook > 1:
        lows = lows * _foreseen(-stats.values, stats, outlook)
        highs = highs * _foreseen(stats.values, stats, outlook)
    weight = unseen(stats)
    if weight.max(initial=0.0) < _LEAST or stats.channels == 1:
        return lows, highs
    which = np.unique(families or np.zeros(stats.channels), return_inverse=True)[1]
    least = _SILENT * np.maximum(-lows, highs)
    return -_towards(-lows, least, which, weight), _towards(highs, least, which, weight)


def _towards(reach: Doubles, least: Doubles, which: NDArray[np.intp], weight: Doubles) -> Doubles:
    """Part of the way, in the logarithm, to the largest of the family.

    An end that a channel does not reach at all counts as ``least``, if others reach it.
    """
    most = np.zeros(int(which.max()) + 1)
    np.maximum.at(most, which, reach)
    live = np.maximum(reach, least)
    wide = np.maximum(live, 1e-30) ** (1 - weight) * most[which] ** weight
    inside = np.clip(wide, reach, np.maximum(most[which], reach))  # powers are not exact
    return np.where(most[which] > 0, inside, reach)


def _foreseen(values: NDArray[np.float32], stats: Statistics, outlook: float) -> Doubles:
    """What the largest value of each channel grows by [C], at least 1.

    The logarithm of how far a sample reaches is taken for normal. Its deviation is that of
    the values that are kept of every sample.
    """
    if len(stats.widths) < 3 or stats.samples < 3:
        return np.ones(stats.channels)
    starts = np.cumsum(stats.widths) - stats.widths
    reach = np.maximum.reduceat(values, starts, axis=1).astype(np.float64)
    most = np.maximum(reach.max(axis=1, keepdims=True), 1e-30)
    deviation = np.log(np.maximum(reach / most, _SILENT)).std(axis=1)
    rise = _largest(outlook * stats.samples) - _largest(stats.samples)
    return np.asarray(np.exp(rise * deviation), np.float64)


def _largest(count: float) -> float:
    """About the largest of so many standard normal numbers, three or more.

    The location of the limiting Gumbel distribution (H. Cramer, "Mathematical Methods of
    Statistics", 1946, 28.6).
    """
    root = math.sqrt(2 * math.log(count))
    return root - (math.log(math.log(count)) + math.log(4 * math.pi)) / (2 * root)
