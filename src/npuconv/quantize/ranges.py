"""Scale and zero point of every channel, by the method of the options.

``auto`` and ``minmax`` take the extremes of calibration, with a margin; ``percentile``, ``entropy``
and ``mse`` clip. Each slot has its own range. Widening some channels for the sake of weights
(cross-layer equalization, M. Nagel et al., ICCV 2019) gains nothing where channels have separate
scales.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.encoding import HIGHEST, LOWEST, Encoding, common_zero, scales_for
from npuconv.data.workers import in_order
from npuconv.legalize.legal import LegalModel
from npuconv.legalize.source_scales import match_groups
from npuconv.partition.channels import Channels
from npuconv.partition.placement import Group
from npuconv.quantize import imported_scales, settings
from npuconv.quantize.calibrate import Calibration
from npuconv.quantize.scale_constraints import ConstraintBuilder, ScaleConstraints
from npuconv.quantize.state import QuantState
from npuconv.records import replace

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Zeros = NDArray[np.int32]
_Choice = tuple[Floats, Zeros]  # scales and zero points of the slots of a group, [K]


def choose_encodings(
    graph: LegalModel,
    calibration: Calibration,
    groups: Sequence[Group] | None = None,
    shares: Mapping[str, float] = {},
) -> QuantState:
    """Choose scale and zero point of every int8 tensor for the file: see ``RangeChoice``."""
    is_fixed = graph.options.io == "int8" or not graph.stores_zeros
    free_zero = 0 if is_fixed else graph.device.free_zero
    return RangeChoice(graph, calibration, groups, free_zero).encode(shares)


_Chosen = tuple[str, dict[str, Encoding]]  # the method that was used, and encodings by tensor


class RangeChoice:
    """Choice of scale and zero point of int8 tensors, at any share of their largest value.

    A tensor of a model that was quantized before keeps those it has. Groups are those given, or
    all of the plan.
    """

    def __init__(
        self,
        graph: LegalModel,
        calibration: Calibration,
        groups: Sequence[Group] | None = None,
        free_zero: int = 0,
    ) -> None:
        self._graph, self._free_zero = graph, free_zero
        self._method = "minmax" if graph.options.method == "auto" else graph.options.method
        self._constraints = ConstraintBuilder(graph, calibration.statistics)
        self._imported = dict[str, _Chosen]()  # encodings of the source model, by name of the group
        imported = match_groups(graph.model, graph.plan).groups
        candidates = list(graph.plan.groups if groups is None else groups)
        for group in (group for group in candidates if group.name in imported):
            centred, cut, cap = self._constraints.demands(group)
            encoding, method = imported_scales.adapt_encoding(
                imported[group.name], centred=centred, cut=cut, cap=cap
            )
            if graph.stores_zeros:
                zeros = np.where(encoding.zeros, encoding.zeros, self._free_zero).astype(np.int32)
                encoding = replace(encoding, zeros=zeros, nominal_zero=int(zeros[0]))
            self._imported[group.name] = method, dict.fromkeys(group.tensors, encoding)
        candidates = [group for group in candidates if group.name not in imported]

        def prepare(group: Group) -> tuple[Group, ScaleConstraints, _Choice]:
            constraints = self._constraints(group)
            return group, constraints, choose(constraints, self._method)

        # Every group with its constraints, and the choice where nothing is clipped.
        self._candidates = list(in_order(prepare, candidates))

    def encode(self, shares: Mapping[str, float] = {}) -> QuantState:
        """Return the choice if computed channels end at these shares of their largest value.

        Args:
            shares: clipping limits by the name of the group; 1 for the other groups.
        """

        def choose_group(prepared: tuple[Group, ScaleConstraints, _Choice]) -> tuple[str, _Chosen]:
            group, constraints, choice = prepared
            narrow = _clip(constraints, shares.get(group.name, 1.0))
            if narrow is not constraints:
                choice = choose(narrow, self._method)
            channels = self._constraints.channels
            encodings = _encode(choice, group, constraints, channels, self._free_zero)
            return group.name, (self._method, dict(encodings))

        choices = dict(in_order(choose_group, self._candidates)) | self._imported
        names = [group.name for group in self._graph.plan.groups if group.name in choices]
        encodings = dict(item for name in names for item in choices[name][1].items())
        return QuantState(encodings, {name: choices[name][0] for name in names}, shares=shares)


def _clip(constraints: ScaleConstraints, share: float) -> ScaleConstraints:
    """Clip the range of the computed slot at a share of its largest value."""
    if share == 1 or not constraints.computed.any():
        return constraints
    end = share * np.maximum(-constraints.lows, constraints.highs)
    lows = np.where(constraints.computed, np.maximum(constraints.lows, -end), constraints.lows)
    highs = np.where(constraints.computed, np.minimum(constraints.highs, end), constraints.highs)
    return replace(constraints, lows=lows, highs=highs)


def _encode(
    choice: _Choice, group: Group, constraints: ScaleConstraints, channels: Channels, free_zero: int
) -> Iterator[tuple[str, Encoding]]:
    group_scales, group_zeros = choice
    computed = group_scales[constraints.computed]
    nominal = computed[0] if computed.size else np.float32(group_scales.max())
    place = {slot: k for k, slot in enumerate(constraints.slots)}
    # Passthrough operators between tensors of the group need one zero point in the file.
    stored = constraints.stored if constraints.stored.any() else np.ones(len(place), bool)
    points = set(group_zeros[stored].tolist())
    is_stored = constraints.stores_zeros and len(points) == 1
    stored_zero = points.pop() if is_stored else 0
    if stored_zero == 0 and free_zero:
        stored_zero = free_zero  # and that of the slots that have the zero point of the file
        tied = constraints.centred | (stored if is_stored else constraints.stored)
        group_zeros = np.where(tied & (group_zeros == 0), free_zero, group_zeros).astype(np.int32)
    for name in group.tensors:
        indices, axis = [place[slot] for slot in channels.slots(name)], channels.axis(name)
        scales, zeros = group_scales[indices], group_zeros[indices]
        if np.all(scales == scales[0]) and np.all(zeros == zeros[0]):
            scales, zeros, axis = scales[:1], zeros[:1], None
        yield name, Encoding(scales, zeros, nominal, axis, stored_zero)


def choose(constraints: ScaleConstraints, method: str) -> _Choice:
    """Return scales and zero points of a group by minmax, percentile, entropy or mse."""
    return _scales(constraints, *_limits(constraints, method))


def _limits(constraints: ScaleConstraints, method: str) -> tuple[Doubles, Doubles]:
    """Return the clipping limits of every slot: float64 lows and highs [K], 0 between them.

    minmax: nowhere; tensors of the host take the range up to 2 % wider whose squared error on their
    values is least. percentile: all at the share of their ranges that 99.99 % of the values
    keep within. entropy: all at the share under which 128 levels keep the distribution best.
    mse: each where its squared error is least.
    """
    lows, highs = np.minimum(constraints.lows, 0), np.maximum(constraints.highs, 0)
    if method == "mse":
        return _least_squares(constraints, lows, highs, settings.RANGE_SHRINKS)
    if method == "minmax" and constraints.is_host_made:
        # Pixels of -1..1 are half a step from every integer, which loses more than wider steps do.
        return _least_squares(constraints, lows, highs, settings.RANGE_WIDENINGS)
    if method == "minmax":
        return lows, highs
    counts, width = _histogram(constraints, lows, highs)
    if not counts.any():
        return lows, highs
    if method == "percentile":
        share = percentile_limit(counts, width, settings.RANGE_PERCENTILE)
    else:
        share = entropy_limit(counts, width)
    return lows * min(share, 1.0), highs * min(share, 1.0)


def _histogram(
    constraints: ScaleConstraints, lows: Doubles, highs: Doubles
) -> tuple[Counts, float]:
    """Count the magnitudes of all slots together, each as a share of its slot's own range.

    A slot has some 1,000 values, too few to show its own tail.
    """
    largest = np.maximum(highs, -lows)
    live = largest > 0
    shares = np.abs(constraints.values[live]) / largest[live, None]
    counts, _ = np.histogram(shares[shares > 0], settings.RANGE_BINS, (0.0, 1.0))
    return counts.astype(np.int64), 1 / settings.RANGE_BINS


def _least_squares(
    constraints: ScaleConstraints, lows: Doubles, highs: Doubles, factors: Sequence[float]
) -> tuple[Doubles, Doubles]:
    """Return the limits of every slot that give the least squared error.

    Both ends, and each end alone, are tried at every factor.
    """
    best_low, best_high = lows.copy(), highs.copy()
    best = _squared_errors(constraints, *_scales(constraints, lows, highs))
    pairs = [(a, a) for a in factors]
    if not np.all(constraints.centred | (lows == 0) | (highs == 0)):
        pairs += [(1.0, a) for a in factors] + [(a, 1.0) for a in factors]
    for low, high in pairs:
        errors = _squared_errors(constraints, *_scales(constraints, lows * low, highs * high))
        better = errors < best
        best_low[better], best_high[better] = (lows * low)[better], (highs * high)[better]
        best[better] = errors[better]
    return best_low, best_high


def _scales(constraints: ScaleConstraints, lows: Doubles, highs: Doubles) -> _Choice:
    highs, stored = np.minimum(highs, constraints.caps), constraints.stored
    scales, zeros = scales_for(lows, highs, constraints.centred)
    if len(set(zeros[stored].tolist())) > 1:
        zero = common_zero(lows[stored], highs[stored])
        fixed = constraints.centred | stored
        scales, zeros = scales_for(lows, highs, fixed, np.where(stored, zero, 0))
    # A channel without values takes the scale of another, but keeps its own bound.
    return np.minimum(scales, constraints.caps / (HIGHEST - zeros)).astype(np.float32), zeros


def _squared_errors(constraints: ScaleConstraints, scales: Floats, zeros: Zeros) -> Doubles:
    """Return the mean squared rounding and clipping error of every slot."""
    steps = constraints.values / scales[:, None]
    np.rint(steps, out=steps)
    lowest, highest = ((end - zeros)[:, None].astype(np.float32) for end in (LOWEST, HIGHEST))
    np.clip(steps, lowest, highest, out=steps)
    steps *= scales[:, None]
    steps -= constraints.values
    return np.einsum("kp,kp->k", steps, steps, dtype=np.float64) / steps.shape[1]


Counts = NDArray[np.int64]

# Positive levels of int8 with zero point 0, zero included.
_LEVELS = 128
# The divergence changes little from one bin to the next, and each evaluation costs a pass.
_STRIDE = 8


def percentile_limit(counts: Counts, width: float, percentile: float) -> float:
    """Return the magnitude that ``percentile`` (0..100) of the values do not exceed.

    Args:
        counts: number of magnitudes above 0 in each bin, bin k around ``(k + 0.5) * width``.
        width: width of a bin, within which the result is linear.
        percentile: percent of the values below the limit.
    """
    rank = int(counts.sum()) * min(percentile / 100, 1.0)
    sums = np.cumsum(counts)
    last = int(np.searchsorted(sums, rank))
    before = int(sums[last]) - int(counts[last])
    return (last + (rank - before) / max(int(counts[last]), 1)) * width


def entropy_limit(counts: Counts, width: float) -> float:
    """Return the magnitude under which 128 levels keep the distribution best; the widest of equals.

    The search of TensorRT (S. Migacz, "8-bit inference with TensorRT", 2017): for each limit
    the clipped histogram P, with the outliers in its last bin, is compared with its 128-level
    version Q by the Kullback-Leibler divergence ``sum p log(p / q)``.
    """
    used = int(np.flatnonzero(counts)[-1]) + 1
    stops = [used, *range(used - _STRIDE, _LEVELS - 1, -_STRIDE)]
    scores = [_divergence(counts, stop) for stop in stops]
    return stops[int(np.argmin(scores))] * width


def _divergence(counts: Counts, stop: int) -> float:
    histogram = counts[:stop].astype(np.float64)
    p = histogram.copy()
    p[-1] += counts[stop:].sum()
    live = p > 0
    level = np.arange(stop) * _LEVELS // stop
    share = np.bincount(level, histogram) / np.maximum(np.bincount(level, live), 1)
    q = np.where(live, share[level], 0.0)
    if np.any(q[live] == 0):
        return math.inf
    p, q = p[live] / p.sum(), q[live] / q.sum()
    return float(np.sum(p * np.log(p / q)))
