"""The scale and zero point of every slot of a group: the candidate of least estimated error.

The error a tensor's rounding makes in the layers that read it is estimated as white noise:
``sum_c e_c |W_c|^2`` with e_c the mean squared rounding error of channel c on its observed
values and W_c the weights that read it, plus what rounding the folded weights adds,
``sum_c |dW_c|^2 var(x_c)``. Both are per position, over the size of the layer's output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from npuconv.quant.encoding import HIGHEST, LOWEST, scales_for
from npuconv.quant.ranges import Counts, entropy_limit, percentile_limit
from npuconv.tuning.scales.balance import balanced
from npuconv.tuning.scales.flat import fitted
from npuconv.tuning.scales.readers import Reader, spread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from npuconv.tuning.scales.demands import Demand

    Doubles = NDArray[np.float64]

ALPHAS = (0.25, 0.5, 0.75, 1.0)
BETAS = (0.5, 1.0)
BINS = 2048  # of the histogram for percentile and entropy
PERCENTILE = 99.99
SHRINKS = (1.0, 0.97, 0.94, 0.9, 0.85, 0.8, 0.72, 0.64, 0.56, 0.48, 0.4)
_FREE = ("auto", "cautious")  # the others are the user's own choice for all ranges


@dataclass(frozen=True)
class Choice:
    """Scales and zero points of the slots of one group.

    Attributes:
        scales: float32 [K].
        zeros: int32 [K].
        method: how the ranges were chosen.
        cost: the estimated error.
        balanced: other scales under which it is clearly less, if estimates are to be trusted.
    """

    scales: NDArray[np.float32]
    zeros: NDArray[np.int32]
    method: str
    cost: float
    balanced: NDArray[np.float32] | None = None


def choose(demand: Demand, method: str) -> Choice:
    """The best candidate.

    Args:
        demand: the group.
        method: minmax, percentile, cautious, entropy, mse; auto is as minmax.
    """
    best: Choice | None = None
    for name in _methods(method):
        lows, highs = limits(demand, name)
        for label, wide_lows, wide_highs in _widened(demand, lows, highs):
            found = _judged(demand, f"{name}{label}", wide_lows, wide_highs)
            if best is None or found.cost < best.cost * (1 - 1e-9):
                best = found
    if demand.exact is not None and method in _FREE:
        found = _judged(demand, "exact", *demand.exact)
        best = found if best is None or found.cost < best.cost else best
    assert best is not None
    if method not in _FREE or best.method == "exact":
        return best
    wide = balanced(demand, best.scales, best.zeros, _errors(demand, best.scales, best.zeros))
    return replace(
        best,
        scales=fitted(demand, best.scales, best.zeros),
        balanced=None if wide is None else fitted(demand, wide, best.zeros),
    )


def _methods(method: str) -> tuple[str, ...]:
    return ("minmax",) if method == "auto" else (method,)


def limits(demand: Demand, method: str) -> tuple[Doubles, Doubles]:
    """Where to clip every slot: float64 lows and highs [K], 0 between them.

    minmax: nowhere. percentile: all at the share of their ranges that 99.99 % of the values
    keep within. cautious: half of that way in decibels, as new samples reach farther than
    those that were seen. entropy: all at the share under which 128 levels keep the
    distribution best. mse: each where its squared error is least.
    """
    lows, highs = np.minimum(demand.lows, 0), np.maximum(demand.highs, 0)
    if method == "mse":
        lows, highs = _least_squares(demand, lows, highs)
    elif method != "minmax":
        share = _SHARES[method](*_histogram(demand, lows, highs))
        lows, highs = lows * share, highs * share
    return lows * demand.room, np.minimum(highs * demand.room, np.maximum(highs, demand.caps))


def _histogram(demand: Demand, lows: Doubles, highs: Doubles) -> tuple[Counts, float]:
    """Magnitudes of all slots together, each as a share of its slot's own range.

    A slot has some 1,000 values, too few to tell its own tail; all of them together show how
    far tails reach beyond where the values are.
    """
    reach = np.maximum(highs, -lows)
    live = reach > 0
    shares = np.abs(demand.values[live]) / reach[live, None]
    counts, _ = np.histogram(shares[shares > 0], BINS, (0.0, 1.0))
    return counts.astype(np.int64), 1 / BINS


def _percentile(counts: Counts, width: float) -> float:
    return min(percentile_limit(counts, width, PERCENTILE), 1.0) if counts.any() else 1.0


def _entropy(counts: Counts, width: float) -> float:
    return min(entropy_limit(counts, width), 1.0) if counts.any() else 1.0


def _cautious(counts: Counts, width: float) -> float:
    return math.sqrt(_percentile(counts, width))


_SHARES: dict[str, Callable[[Counts, float], float]] = {
    "percentile": _percentile,
    "cautious": _cautious,
    "entropy": _entropy,
}


def _least_squares(demand: Demand, lows: Doubles, highs: Doubles) -> tuple[Doubles, Doubles]:
    """Both ends drawn in by what gives every slot the least squared error."""
    best_low, best_high = lows.copy(), highs.copy()
    best = _errors(demand, *_scales(demand, lows, highs))
    pairs = [(a, a) for a in SHRINKS[1:]] + [(1.0, a) for a in SHRINKS[1:]]
    pairs += [(a, 1.0) for a in SHRINKS[1:]]
    one_sided = bool(np.all(demand.centred | (lows == 0) | (highs == 0)))
    for low, high in pairs[: len(SHRINKS) - 1] if one_sided else pairs:
        tried = _errors(demand, *_scales(demand, lows * low, highs * high))
        better = tried < best
        best_low[better], best_high[better] = (lows * low)[better], (highs * high)[better]
        best[better] = tried[better]
    return best_low, best_high


def _scales(
    demand: Demand, lows: Doubles, highs: Doubles
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    scales, zeros = scales_for(lows, np.minimum(highs, demand.caps), demand.centred)
    # A channel without values takes the scale of another, but its bound stays its own.
    return np.minimum(scales, demand.caps / (HIGHEST - zeros)).astype(np.float32), zeros


def _errors(demand: Demand, scales: NDArray[np.float32], zeros: NDArray[np.int32]) -> Doubles:
    """Mean squared rounding and clipping error of every slot."""
    steps = demand.values / scales[:, None]
    np.rint(steps, out=steps)
    np.clip(steps, (LOWEST - zeros)[:, None], (HIGHEST - zeros)[:, None], out=steps)
    steps *= scales[:, None]
    steps -= demand.values
    return np.einsum("kp,kp->k", steps, steps, dtype=np.float64) / steps.shape[1]


def _widened(
    demand: Demand, lows: Doubles, highs: Doubles
) -> Iterator[tuple[str, Doubles, Doubles]]:
    """The ranges as they are, and some channels given wider ones for the weights' sake."""
    yield "", lows, highs
    if demand.count == 1:
        return
    reach = np.maximum(highs, -lows)
    weights = _reach_of_weights(demand)
    for beta in BETAS:  # towards one scale for all
        yield f", beta {beta:g}", *_by(reach ** (1 - beta) * reach.max() ** beta, lows, highs)
    if weights is None:
        return
    for alpha in ALPHAS:
        product = np.where(weights > 0, reach * weights, 0)
        wanted = reach ** (1 - alpha) * (product.max() / np.maximum(weights, 1e-30)) ** alpha
        wanted = np.where(weights > 0, wanted, reach)
        yield f", alpha {alpha:g}", *_by(wanted, lows, highs)


def _by(wanted: Doubles, lows: Doubles, highs: Doubles) -> tuple[Doubles, Doubles]:
    reach = np.maximum(highs, -lows)
    factor = np.where(reach > 0, np.maximum(wanted, reach) / np.maximum(reach, 1e-30), 1.0)
    return lows * factor, highs * factor


def _reach_of_weights(demand: Demand) -> Doubles | None:
    """Largest weight that reads each slot; None where only depthwise ones do."""
    result = np.zeros(demand.count)
    dense = [r for r in demand.readers if r.weight.shape[1] > 1 and r.slots.size > 1]
    for reader in dense:
        columns = _columns(reader, np.max)
        np.maximum.at(result, reader.slots, columns)
    return result if dense and result.any() else None


def _columns(reader: Reader, reduce: object) -> Doubles:
    """A number for every input channel of what reads it."""
    w = np.abs(reader.weight)
    m, c = w.shape[:2]
    rows = w.reshape(reader.group, m // reader.group, c, -1)
    folded: Doubles = reduce(reduce(rows, axis=3), axis=1)  # type: ignore[operator]
    return folded.reshape(-1)


def _judged(demand: Demand, method: str, lows: Doubles, highs: Doubles) -> Choice:
    scales, zeros = _scales(demand, lows, highs)
    errors = _errors(demand, scales, zeros)
    cost = 0.0
    for reader in demand.readers:
        cost += _input_error(reader, errors) + _weight_error(demand, reader, scales)
    if demand.host or not demand.readers:
        power = float(np.mean(np.square(demand.values, dtype=np.float64)))
        cost += float(errors.mean()) / max(power, 1e-30)
    return Choice(scales, zeros, method, cost)


def _input_error(reader: Reader, errors: Doubles) -> float:
    power = (reader.weight**2 * spread(reader, errors)).reshape(len(reader.weight), -1)
    return float(power.sum(axis=1).mean())


def _weight_error(demand: Demand, reader: Reader, scales: NDArray[np.float32]) -> float:
    ratios = spread(reader, scales.astype(np.float64))
    w = (reader.weight * ratios).reshape(len(reader.weight), -1)
    step = np.maximum(np.abs(w).max(axis=1, keepdims=True) / 127, 1e-30)
    left = reader.left
    if left is None:
        left = spread(reader, demand.values.var(axis=1, dtype=np.float64))
    power = (np.square(1 / ratios) * left * np.ones_like(reader.weight)).reshape(len(w), -1)
    return float(((step**2 / 12) * power).sum(axis=1).mean())
