"""Steps under which what fills whole areas of a sample is stored well.

The rounding errors of unlike values are unlike, and where a convolution adds them up most of
them cancel. A background, a margin or silence is one value everywhere: all of it errs by the
same amount, which adds up to a shift of the whole area, and layer after layer hands it on. A
step that is a few percent wider and has that value on its grid costs a fraction of a decibel
elsewhere. (One channel of 32 with such a value made a third of a text detector's noise.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npuconv.quant.encoding import HIGHEST, LOWEST

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from npuconv.quant.statistics import Statistics
    from npuconv.tuning.scales.demands import Demand

    Doubles = NDArray[np.float64]
    Scales = NDArray[np.float32]
    Zeros = NDArray[np.int32]

# How much more an error counts that a whole sample shares. Between 10 and 100 little changes.
SHARED = 30.0
WORTH = 0.2  # of the error as a whole: below, what samples share is not worth the time
# Steps that are tried, as multiples of the one there is. Of a large value they are many, so it
# is on the grid again after a little; of a small one they are few. So the first lie closest.
FACTORS = 1.0 + 0.06 * np.linspace(0.0, 1.0, 15)[1:] ** 2
_ROWS = 64  # that are looked at together: their values stay in the cache


def fitted(demand: Demand, scales: Scales, zeros: Zeros) -> Scales:
    """Scales that are as large or a little larger, and hold what samples are full of.

    Args:
        demand: the group, with the sample that each value is of.
        scales: float32 [K], under which no value is clipped that should not be.
        zeros: int32 [K]; they stay.

    Returns:
        float32 [K]; the same where samples share no error to speak of.
    """
    if demand.samples is None:
        return scales
    samples = _Samples(demand.samples)
    white, shared = samples.errors(demand.values, scales, zeros)
    rows = np.flatnonzero(SHARED * shared > WORTH * white)
    if not rows.size:
        return scales
    found, values = scales.copy(), demand.values[rows]
    least = (white + SHARED * shared)[rows]
    bounds = demand.caps[rows] / (HIGHEST - zeros[rows])
    for factor in FACTORS:
        tried = np.minimum(scales[rows] * factor, bounds).astype(np.float32)
        white, shared = samples.errors(values, tried, zeros[rows])
        cost = white + SHARED * shared
        better = cost < least
        found[rows[better]], least[better] = tried[better], cost[better]
    return found


def owners(
    rows: Sequence[Sequence[tuple[Statistics, int]]], places: Callable[[int], NDArray[np.intp]]
) -> NDArray[np.int64] | None:
    """The sample that each value is of, where that is the same for all slots.

    Args:
        rows: for each slot the channels of tensors that it stands for.
        places: which of so many values of a channel are looked at.

    Returns:
        int64, as many as places; None where slots stand for several channels, tensors differ
        in how many values they have of a sample, or each sample has one.
    """
    tensors = list({id(s): s for row in rows for s, _ in row}.values())
    every = [np.repeat(s.numbers, s.widths) for s in tensors]
    if not every or not every[0].size or any(len(row) != 1 for row in rows):
        return None
    if any(not np.array_equal(every[0], other) for other in every[1:]):
        return None
    found = every[0][places(every[0].size)]
    return found if np.unique(found).size < found.size else None


class _Samples:
    """Which values are of which sample.

    Args:
        owners: int64 [P], the sample of every value; those of one side by side.
    """

    def __init__(self, owners: NDArray[np.int64]) -> None:
        starts = np.flatnonzero(np.diff(owners, prepend=owners[0] - 1))
        self._starts, self._counts = starts, np.diff(starts, append=len(owners))

    def errors(self, values: Scales, scales: Scales, zeros: Zeros) -> tuple[Doubles, Doubles]:
        """Mean squared error of rounding, and of that what the values of a sample share.

        Args:
            values: float32 [K,P].
            scales: float32 [K].
            zeros: int32 [K].

        Returns:
            float64 [K] each. The second is the square of a sample's mean error less what the
            mean of so many unlike errors would have: on average 0 where they share nothing.
        """
        starts = range(0, len(values), _ROWS)
        parts = [slice(start, start + _ROWS) for start in starts]
        each = [self._some(values[part], scales[part], zeros[part]) for part in parts]
        whole, shared = (np.concatenate(column) for column in zip(*each, strict=True))
        return whole, shared

    def _some(self, values: Scales, scales: Scales, zeros: Zeros) -> tuple[Doubles, Doubles]:
        steps = values / scales[:, None]
        off = np.rint(steps)
        low, high = (np.float32(end) - zeros.astype(np.float32) for end in (LOWEST, HIGHEST))
        np.clip(off, low[:, None], high[:, None], out=off)
        off -= steps
        power = np.square(scales, dtype=np.float64)
        whole = np.einsum("kp,kp->k", off, off) / off.shape[1] * power
        sums = np.add.reduceat(off, self._starts, axis=1)
        means = np.square(sums / self._counts).mean(axis=1) * power
        chance = float(np.mean(1 / self._counts))
        return whole, np.maximum((means - chance * whole) / (1 - chance), 0.0)
