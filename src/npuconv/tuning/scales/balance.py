"""The precision of a tensor's channels weighed against that of the weights that read them.

A channel's scale is also a factor of its weights. A larger one makes its values coarser; but
what the rounding of weights adds is counted in steps of the input, of which there are fewer
then, as long as the channel does not become the largest of its rows, whose steps would grow.
With t_c >= 1 the factor of channel c, the layer's error is estimated as

    sum_c A_c e_c t_c^2  +  mean_m(step_m^2) / 12 * sum_c L_c / (s_c t_c)^2
    step_m = max_c(|W_mc| s_c t_c) / 127

e_c: mean squared rounding error of the channel, A_c: mean of the squares of its weights, L_c:
what of its square other inputs cannot make up for. Where its derivative vanishes, what grows
with t_c^2 equals what shrinks with it, so half of the fourth root of their ratio is the next
step. This is cross-layer equalization (M. Nagel et al., ICCV 2019) with both errors in view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npuconv.quant.encoding import HIGHEST

if TYPE_CHECKING:
    from npuconv.tuning.scales.demands import Demand
    from npuconv.tuning.scales.readers import Reader

    Doubles = NDArray[np.float64]

ROUNDS = 24
_FIRST = 6  # rounds after which a gain shows, if there is one
WORTH = 0.95  # of the error, or less, must be left
_MOST = np.log(16.0)  # a channel's scale grows no more than this
_HALF = 0.125  # of the fourth root of a ratio of squares, in logarithms


class _Weights(NamedTuple):
    """What a reader's weights add to the error when they are rounded.

    Attributes:
        reach: float32 [M,C], the largest of each kernel.
        left: [C], of each input's square what others cannot make up for.
        slots: int [C].
    """

    reach: NDArray[np.float32]
    left: Doubles
    slots: NDArray[np.int64]


def balanced(
    demand: Demand, scales: NDArray[np.float32], zeros: NDArray[np.int32], errors: Doubles
) -> NDArray[np.float32] | None:
    """Scales that are as large or larger, with the least error in what reads the tensor.

    Args:
        demand: the group.
        scales: float32 [K], under which no value is clipped that should not be.
        zeros: int32 [K]; they stay.
        errors: mean squared rounding errors [K] under these scales.

    Returns:
        float32 [K]; None where no convolution mixes the channels, or little is gained.
    """
    weights = [_weights(demand, r) for r in demand.readers if _mixes(r)]
    if not weights:
        return None
    inputs, base = _sensitivity(demand) * errors, scales.astype(np.float64)
    most = np.log(np.maximum(demand.caps / (HIGHEST - zeros) / base, 1.0))
    most = np.where(errors > 0, np.minimum(most, _MOST), 0.0)
    factors = best = np.zeros(len(base))
    first, least = 0.0, np.inf
    for number in range(ROUNDS):
        cost, step = _step(weights, base * np.exp(factors), inputs * np.exp(2 * factors))
        if cost < least:
            least, best = cost, factors
        first = cost if number == 0 else first
        if number == _FIRST and least > WORTH * first:
            return None
        factors = np.clip(factors + step, 0.0, most)
    return np.asarray(base * np.exp(best), np.float32)


def _step(weights: list[_Weights], scales: Doubles, grows: Doubles) -> tuple[float, Doubles]:
    """The error under these scales, and how far to change their logarithms."""
    cost, shrinks, tiny = float(grows.sum()), np.zeros(len(grows)), np.finfo(np.float64).tiny
    for one in weights:
        cost += _add(one, scales, grows, shrinks)
    return cost, _HALF * (np.log(np.maximum(shrinks, tiny)) - np.log(np.maximum(grows, tiny)))


def _mixes(reader: Reader) -> bool:
    return reader.group == 1 and reader.slots.size > 1


def _weights(demand: Demand, reader: Reader) -> _Weights:
    rows = np.abs(reader.stored).reshape(*reader.stored.shape[:2], -1)
    if reader.left is None:
        left = demand.values.var(axis=1, dtype=np.float64)[reader.slots] * rows.shape[2]
    else:
        left = reader.left.reshape(rows.shape[1], -1).sum(axis=1)
    reach = np.asarray(rows.max(axis=2) / reader.size, np.float32)
    return _Weights(reach, left, reader.slots)


def _sensitivity(demand: Demand) -> Doubles:
    """What a mean squared error of 1 in each slot adds to those of the readers, [K]."""
    found = np.zeros(demand.count)
    for reader in demand.readers:
        squares = np.square(reader.stored, dtype=np.float64) / reader.size**2
        rows = squares.reshape(reader.group, -1, squares.shape[1], squares[0, 0].size)
        columns = rows.sum(axis=(1, 3)).reshape(-1) / len(squares)
        np.add.at(found, np.broadcast_to(reader.slots, columns.shape), columns)
    if demand.host:
        power = float(np.mean(np.square(demand.values, dtype=np.float64)))
        found += 1 / (demand.count * max(power, 1e-30))
    return found


def _add(one: _Weights, scales: Doubles, grows: Doubles, shrinks: Doubles) -> float:
    """Add what the rounding of weights costs each slot; all of it together."""
    own = scales[one.slots]
    folded = one.reach * np.asarray(own, np.float32)
    largest = np.maximum(folded.max(axis=1, keepdims=True), np.float32(1e-30))
    steps = np.square(largest[:, 0].astype(np.float64) / 127) / 12
    coarse = one.left / np.square(own)
    np.add.at(shrinks, one.slots, steps.mean() * coarse)
    # The sixteenth power for the largest: who is near it shares in what it costs.
    near = folded / largest
    for _ in range(4):
        np.square(near, out=near)
    crowd = np.maximum(near.sum(axis=1, dtype=np.float64), 1.0)  # 0 in a row without weights
    shares = (steps / crowd) @ near / len(steps)
    np.add.at(grows, one.slots, coarse.sum() * shares)
    return float(steps.mean() * coarse.sum())
