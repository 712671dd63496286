"""Scales under which what fills whole areas of a sample is stored well.

The rounding errors of unlike values are unlike, and where a convolution adds them up most of
them cancel. A background, a margin or silence is one value everywhere: all of it errs by the
same amount, which adds up to a shift of the whole area. A step that is a few percent larger and
has that value on its grid costs a fraction of a decibel elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.encoding import HIGHEST, LOWEST
from npuconv.quantize.settings import CORRELATED

if TYPE_CHECKING:
    from npuconv.quantize.scale_constraints import ScaleConstraints

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Zeros = NDArray[np.int32]
_ROWS = 64  # looked at together: their values stay in the cache


def fitted(one: ScaleConstraints, scales: Floats, zeros: Zeros) -> Floats:
    """Return scales that are as large or a little larger, with less correlated error.

    Args:
        one: the group, with the sample that each value is of.
        scales: float32 [K], under which no value is clipped that should not be.
        zeros: int32 [K]; they stay.

    Returns:
        float32 [K]; the same where samples share no error to speak of.
    """
    if one.samples is None:
        return scales
    white, shared = _errors(one.values, one.samples, scales, zeros)
    rows = np.flatnonzero(CORRELATED.weight * shared > CORRELATED.least * white)
    found, values = scales.copy(), one.values[rows]
    least = (white + CORRELATED.weight * shared)[rows]
    bounds = one.caps[rows] / (HIGHEST - zeros[rows])
    for factor in CORRELATED.factors if rows.size else ():
        tried = np.minimum(scales[rows] * factor, bounds).astype(np.float32)
        white, shared = _errors(values, one.samples, tried, zeros[rows])
        cost = white + CORRELATED.weight * shared
        better = cost < least
        found[rows[better]], least[better] = tried[better], cost[better]
    return found


def _errors(
    values: Floats, samples: NDArray[np.int64], scales: Floats, zeros: Zeros
) -> tuple[Doubles, Doubles]:
    """Return the mean squared error of rounding, and of that what the values of a sample share.

    The second is the square of a sample's mean error less what the mean of so many unlike
    errors would have: on average 0 where they share nothing.

    Args:
        values: float32 [K,P], those of one sample side by side.
        samples: int64 [P], the sample of every value.
        scales: float32 [K].
        zeros: int32 [K].

    Returns:
        float64 [K] each.
    """
    starts = np.flatnonzero(np.diff(samples, prepend=samples[:1] - 1))
    counts, power = np.diff(starts, append=len(samples)), np.square(scales, dtype=np.float64)
    white, means = np.zeros(len(values)), np.zeros(len(values))
    for first in range(0, len(values), _ROWS):
        own = slice(first, first + _ROWS)
        steps = values[own] / scales[own, None]
        off, lows = np.rint(steps), (LOWEST - zeros[own, None]).astype(np.float32)
        np.clip(off, lows, lows + np.float32(HIGHEST - LOWEST), out=off)
        off -= steps
        white[own] = np.einsum("kp,kp->k", off, off) / off.shape[1]
        means[own] = np.square(np.add.reduceat(off, starts, axis=1) / counts).mean(axis=1)
    chance = float(np.mean(1 / counts))
    return white * power, np.maximum((means - chance * white) / (1 - chance), 0.0) * power
