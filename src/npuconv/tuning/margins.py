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

ENOUGH = 300.0  # independent values after which half of a channel's range is believed
_LEAST = 0.02


def unseen(stats: Statistics) -> float:
    """How little was seen of each channel: 1 for nothing, towards 0 for all there is.

    Values of one sample go along with each other, so those of a map count as the length of
    its side.
    """
    each = stats.count / max(stats.samples, 1)
    return 1 / (1 + stats.samples * math.sqrt(each) / ENOUGH)


def widened(stats: Statistics, families: Sequence[int] = ()) -> tuple[Doubles, Doubles]:
    """Extremes with a margin where a channel was seen too little.

    A channel that was seen seldom gets part of the range of the others that were made with
    it: clipping a large value costs more than coarse steps do.

    Args:
        stats: of the tensor.
        families: a number for each channel, equal for those that one layer makes; all are
            of one family where they are not given.

    Returns:
        float64 lows and highs [C]; an end at 0, where an activation cuts off, stays.
    """
    lows, highs = stats.lows.astype(np.float64), stats.highs.astype(np.float64)
    weight = unseen(stats)
    if weight < _LEAST or stats.channels == 1:
        return lows, highs
    which = np.unique(families or np.zeros(stats.channels), return_inverse=True)[1]
    return -_towards(-lows, which, weight), _towards(highs, which, weight)


def _towards(reach: Doubles, which: NDArray[np.intp], weight: float) -> Doubles:
    """Part of the way, in the logarithm, to the largest of the family."""
    live = np.maximum(reach, 1e-30)
    most = np.zeros(int(which.max()) + 1)
    np.maximum.at(most, which, live)
    wide = live ** (1 - weight) * most[which] ** weight
    return np.where(reach > 0, wide, reach)
