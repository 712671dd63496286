"""Range margins: how far a channel may go beyond what the samples have shown of it.

A new sample goes beyond the largest of those seen by about as much as the largest goes beyond
the second: for values with a Pareto tail both log gaps have the same distribution (A. Renyi,
"On the theory of order statistics", 1953). So the ends of all channels of a tensor grow by the
median, over its channels, of the ratio of the two largest.

A channel that was seen seldom gets part of the way, in the logarithm, to the range of the
channels that the same layer makes: with n independent values seen, the weight of the others
is ``1 / (1 + n / 300)``. Values of one sample go along with each other, so those of a map
count as the length of its side.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from npuconv.quantize.settings import MARGIN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npuconv.arithmetic.statistics import Statistics

Doubles = NDArray[np.float64]


def with_margin(
    stats: Statistics, families: Sequence[int] = (), *, tails: bool = True
) -> tuple[Doubles, Doubles]:
    """Return extremes with a margin where a channel was seen too little.

    Clipping a large value costs more than coarse steps do. That goes for each end: a logit
    that was negative in all samples is the class that none of them was of.

    Args:
        stats: of the tensor.
        families: a number for each channel, equal for those that one layer makes; all are
            of one family where they are not given.
        tails: whether the two largest samples tell how far a new one goes. Not of what the
            host makes, which is often bounded or on a grid.

    Returns:
        float64 lows and highs [C]; an end at 0, where an activation cuts all of them off,
        stays.
    """
    lows, highs = -stats.lows.astype(np.float64), stats.highs.astype(np.float64)
    if tails and stats.samples >= MARGIN.fewest:
        lows *= _tail_ratio(lows, -stats.second_lows.astype(np.float64))
        highs *= _tail_ratio(highs, stats.second_highs.astype(np.float64))
    weight = unseen(stats)
    if weight.max(initial=0.0) < MARGIN.least or stats.channels == 1:
        return -lows, highs
    which = np.unique(families or np.zeros(stats.channels), return_inverse=True)[1]
    least = MARGIN.silent * np.maximum(lows, highs)
    below, above = _largest_of_family(lows, which), _largest_of_family(highs, which)
    return -_towards(lows, least, below, weight), _towards(highs, least, above, weight)


def _tail_ratio(largest: Doubles, second: Doubles) -> float:
    """Return the median, over channels, of the ratio of the two largest; 1 where nothing is."""
    live = (largest > 0) & (second > 0)
    ratios = largest[live] / second[live]
    return min(float(np.median(ratios)), MARGIN.most) if live.any() else 1.0


def unseen(stats: Statistics) -> Doubles:
    """Return how little was seen of each channel [C]: 1 for nothing, towards 0 for all there is.

    Of a channel that is silent in most places only the others count.
    """
    each = stats.count / max(stats.samples, 1) * _active(stats)
    return np.asarray(1 / (1 + stats.samples * np.sqrt(each) / MARGIN.enough), np.float64)


def _active(stats: Statistics) -> Doubles:
    """Return the share of a channel's values [C] that are not silent beside its largest."""
    if not stats.values.size:
        return np.ones(stats.channels)
    least = MARGIN.silent * np.maximum(-stats.lows, stats.highs)
    return np.asarray((np.abs(stats.values) > least[:, None]).mean(axis=1), np.float64)


def _towards(own: Doubles, least: Doubles, most: Doubles, weight: Doubles) -> Doubles:
    """Go part of the way, in the logarithm, to the largest of the family.

    An end that a channel does not have at all counts as ``least``, if others have it.
    """
    live = np.maximum(own, least)
    wide = np.maximum(live, 1e-30) ** (1 - weight) * most**weight
    inside = np.clip(wide, own, np.maximum(most, own))  # powers are not exact
    return np.where(most > 0, inside, own)


def _largest_of_family(own: Doubles, which: NDArray[np.intp]) -> Doubles:
    """Return how far any channel of its family goes, for each channel [C]."""
    most = np.zeros(int(which.max()) + 1)
    np.maximum.at(most, which, own)
    return np.asarray(most[which], np.float64)
