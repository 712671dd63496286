"""Scale and zero point of every channel: the range with the least estimated error.

The error that a tensor's rounding makes in the layers that read it is estimated as white noise:
``sum_c e_c |W_c|^2`` with e_c the mean squared rounding error of channel c on its observed
values and W_c the weights that read it, plus what rounding the folded weights adds,
``sum_c |dW_c|^2 var(x_c)``. Both are per position, over the size of the layer's output.
Some channels get a wider range where that lets the weights have smaller steps, which is
cross-layer equalization (M. Nagel et al., ICCV 2019) with both errors in view.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.encoding import HIGHEST, LOWEST, Encoding, scales_for
from npuconv.arithmetic.ranges import Counts, entropy_limit, percentile_limit
from npuconv.calibration.workers import in_order
from npuconv.quantize.correlated_error import fitted
from npuconv.quantize.scale_constraints import ConstraintsOf, Reader
from npuconv.quantize.settings import RANGES
from npuconv.quantize.state import QuantState

if TYPE_CHECKING:
    from npuconv.arithmetic.grid import Grid
    from npuconv.plan import Group
    from npuconv.plan.channels import Channels
    from npuconv.quantize.calibrate import Calibration
    from npuconv.quantize.scale_constraints import ScaleConstraints
    from npuconv.quantize.state import DeviceGraph

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]


def choose_encodings(
    graph: DeviceGraph,
    seen: Calibration,
    grids: Mapping[str, Grid],
    without: Collection[str] = (),
    groups: Sequence[Group] | None = None,
) -> QuantState:
    """Choose scale and zero point of every int8 tensor.

    Args:
        graph: a legal float model.
        seen: what the samples have shown.
        grids: of tensors whose values may be whole steps.
        without: steps that are left out: ``equalization``, ``correlated-error`` and those of
            ``ConstraintsOf``.
        groups: of tensors; None for all of the plan.
    """
    constraints = ConstraintsOf(graph, seen.statistics, seen.hessians, grids, without)
    equalize, fit = "equalization" not in without, "correlated-error" not in without

    def work(group: Group) -> tuple[str, dict[str, Encoding]]:
        one = constraints(group)
        choice = choose(one, graph.options.method, equalize=equalize)
        if graph.options.method == "auto" and choice.method != "exact" and fit:
            choice = replace(choice, scales=fitted(one, choice.scales, choice.zeros))
        return choice.method, dict(_stored(choice, group, one, constraints.channels))

    encodings: dict[str, Encoding] = {}
    methods: dict[str, str] = {}
    groups = graph.plan.groups if groups is None else groups
    for group, (method, found) in zip(groups, in_order(work, groups), strict=True):
        methods[group.name] = method
        encodings.update(found)
    return QuantState(encodings, methods)


def _stored(
    choice: Choice, group: Group, one: ScaleConstraints, channels: Channels
) -> Iterator[tuple[str, Encoding]]:
    place, nominal = {slot: k for k, slot in enumerate(one.slots)}, np.float32(choice.scales.max())
    for name in group.tensors:
        at, axis = [place[slot] for slot in channels.slots(name)], channels.axis(name)
        scales, zeros = choice.scales[at], choice.zeros[at]
        if np.all(scales == scales[0]) and np.all(zeros == zeros[0]):
            scales, zeros, axis = scales[:1], zeros[:1], None
        yield name, Encoding(scales, zeros, nominal, axis)


@dataclass(frozen=True)
class Choice:
    """Scales and zero points of the K slots of one group.

    Attributes:
        scales: float32 [K].
        zeros: int32 [K].
        method: how the ranges were chosen.
        cost: the estimated error.
    """

    scales: Floats
    zeros: NDArray[np.int32]
    method: str
    cost: float


def choose(one: ScaleConstraints, method: str, *, equalize: bool = True) -> Choice:
    """Return the candidate with the least estimated error.

    Args:
        one: the group.
        method: minmax, percentile, entropy, mse; auto is as minmax, or exact where the values
            are on a grid.
        equalize: try wider ranges for some channels.
    """
    name = "minmax" if method == "auto" else method
    candidates: list[tuple[str, Doubles, Doubles]] = [(name, *_limits(one, name))]
    if equalize:
        candidates += _equalized(one, *candidates[0])
    if method == "auto" and one.exact is not None:
        candidates.insert(0, ("exact", *one.exact))
    return min((_judged(one, *each) for each in candidates), key=lambda found: found.cost)


def _limits(one: ScaleConstraints, method: str) -> tuple[Doubles, Doubles]:
    """Return where to clip every slot: float64 lows and highs [K], 0 between them.

    minmax: nowhere. percentile: all at the share of their ranges that 99.99 % of the values
    keep within. entropy: all at the share under which 128 levels keep the distribution best.
    mse: each where its squared error is least.
    """
    lows, highs = np.minimum(one.lows, 0), np.maximum(one.highs, 0)
    if method == "minmax":
        return lows, highs
    if method == "mse":
        return _least_squares(one, lows, highs)
    counts, width = _histogram(one, lows, highs)
    if not counts.any():
        return lows, highs
    if method == "percentile":
        share = percentile_limit(counts, width, RANGES.percentile)
    else:
        share = entropy_limit(counts, width)
    return lows * min(share, 1.0), highs * min(share, 1.0)


def _histogram(one: ScaleConstraints, lows: Doubles, highs: Doubles) -> tuple[Counts, float]:
    """Count the magnitudes of all slots together, each as a share of its slot's own range.

    A slot has some 1,000 values, too few to tell its own tail; all of them together show how
    far tails go beyond where the values are.
    """
    largest = np.maximum(highs, -lows)
    live = largest > 0
    shares = np.abs(one.values[live]) / largest[live, None]
    counts, _ = np.histogram(shares[shares > 0], RANGES.bins, (0.0, 1.0))
    return counts.astype(np.int64), 1 / RANGES.bins


def _least_squares(one: ScaleConstraints, lows: Doubles, highs: Doubles) -> tuple[Doubles, Doubles]:
    """Draw both ends in to what gives every slot the least squared error."""
    best_low, best_high = lows.copy(), highs.copy()
    best = _errors(one, *_scales(one, lows, highs))
    pairs = [(a, a) for a in RANGES.shrinks]
    if not np.all(one.centred | (lows == 0) | (highs == 0)):
        pairs += [(1.0, a) for a in RANGES.shrinks] + [(a, 1.0) for a in RANGES.shrinks]
    for low, high in pairs:
        tried = _errors(one, *_scales(one, lows * low, highs * high))
        better = tried < best
        best_low[better], best_high[better] = (lows * low)[better], (highs * high)[better]
        best[better] = tried[better]
    return best_low, best_high


def _scales(
    one: ScaleConstraints, lows: Doubles, highs: Doubles
) -> tuple[Floats, NDArray[np.int32]]:
    scales, zeros = scales_for(lows, np.minimum(highs, one.caps), one.centred)
    # A channel without values takes the scale of another, but its bound stays its own.
    return np.minimum(scales, one.caps / (HIGHEST - zeros)).astype(np.float32), zeros


def _errors(one: ScaleConstraints, scales: Floats, zeros: NDArray[np.int32]) -> Doubles:
    """Return the mean squared rounding and clipping error of every slot."""
    steps = one.values / scales[:, None]
    np.rint(steps, out=steps)
    np.clip(steps, (LOWEST - zeros)[:, None], (HIGHEST - zeros)[:, None], out=steps)
    steps *= scales[:, None]
    steps -= one.values
    return np.einsum("kp,kp->k", steps, steps, dtype=np.float64) / steps.shape[1]


def _equalized(
    one: ScaleConstraints, method: str, lows: Doubles, highs: Doubles
) -> Iterator[tuple[str, Doubles, Doubles]]:
    """Yield ranges with some channels widened for the weights' sake."""
    if one.count == 1:
        return
    largest = np.maximum(highs, -lows)
    for beta in RANGES.betas:  # towards one scale for all
        wanted = largest ** (1 - beta) * largest.max() ** beta
        yield f"{method}, beta {beta:g}", *_widened(wanted, lows, highs)
    weights = _largest_weights(one)
    if weights is None:
        return
    for alpha in RANGES.alphas:
        product = np.where(weights > 0, largest * weights, 0)
        wanted = largest ** (1 - alpha) * (product.max() / np.maximum(weights, 1e-30)) ** alpha
        wanted = np.where(weights > 0, wanted, largest)
        yield f"{method}, alpha {alpha:g}", *_widened(wanted, lows, highs)


def _widened(wanted: Doubles, lows: Doubles, highs: Doubles) -> tuple[Doubles, Doubles]:
    largest = np.maximum(highs, -lows)
    factor = np.where(largest > 0, np.maximum(wanted, largest) / np.maximum(largest, 1e-30), 1.0)
    return lows * factor, highs * factor


def _largest_weights(one: ScaleConstraints) -> Doubles | None:
    """Return the largest weight that reads each slot; None where only depthwise ones do."""
    result = np.zeros(one.count)
    dense = [r for r in one.readers if r.stored.shape[1] > 1 and r.slots.size > 1]
    for reader in dense:
        rows = np.abs(reader.stored).reshape(
            reader.group, -1, *reader.stored.shape[1:2], reader.stored[0, 0].size
        )
        np.maximum.at(result, reader.slots, rows.max(axis=(1, 3)).reshape(-1) / reader.size)
    return result if dense and result.any() else None


def _judged(one: ScaleConstraints, method: str, lows: Doubles, highs: Doubles) -> Choice:
    scales, zeros = _scales(one, lows, highs)
    errors = _errors(one, scales, zeros)
    cost = sum(_input_error(r, errors) + _weight_error(one, r, scales) for r in one.readers)
    if one.host or not one.readers:
        power = float(np.mean(np.square(one.values, dtype=np.float64)))
        cost += float(errors.mean()) / max(power, 1e-30)
    return Choice(scales, zeros, method, cost)


def _input_error(reader: Reader, errors: Doubles) -> float:
    power = (reader.weight**2 * reader.spread(errors)).reshape(len(reader.stored), -1)
    return float(power.sum(axis=1).mean())


def _weight_error(one: ScaleConstraints, reader: Reader, scales: Floats) -> float:
    ratios = reader.spread(scales.astype(np.float64))
    w = (reader.weight * ratios).reshape(len(reader.stored), -1)
    step = np.maximum(np.abs(w).max(axis=1, keepdims=True) / 127, 1e-30)
    left = reader.left
    if left is None:
        left = reader.spread(one.values.var(axis=1, dtype=np.float64))
    power = (np.square(1 / ratios) * left * np.ones_like(reader.weight)).reshape(len(w), -1)
    return float(((step**2 / 12) * power).sum(axis=1).mean())
