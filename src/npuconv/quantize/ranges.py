"""Scale and zero point of every channel, by the method that was asked for.

``auto`` and ``minmax`` take all that was seen, with a margin, and ``auto`` the grid of values
that lie on one, as pixels do; ``percentile``, ``entropy`` and ``mse`` clip. Each slot has its
own range. Widening some channels for the sake of weights (cross-layer equalization, M. Nagel
et al., ICCV 2019) brings nothing where channels have scales of their own.
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
from npuconv.quantize.scale_constraints import ConstraintsOf
from npuconv.quantize.settings import RANGES
from npuconv.quantize.state import QuantState

if TYPE_CHECKING:
    from npuconv.arithmetic.grid import Grid
    from npuconv.partition import Group
    from npuconv.partition.channels import Channels
    from npuconv.quantize.calibrate import Calibration
    from npuconv.quantize.scale_constraints import ScaleConstraints
    from npuconv.quantize.state import DeviceGraph

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Zeros = NDArray[np.int32]


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
        without: steps that are left out: ``correlated-error`` and those of ``ConstraintsOf``.
        groups: of tensors; None for all of the plan.
    """
    constraints = ConstraintsOf(graph, seen.statistics, grids, without)
    fit = "correlated-error" not in without

    def work(group: Group) -> tuple[str, dict[str, Encoding]]:
        """Return the method that was used, and the encodings of a group."""
        one = constraints(group)
        choice = choose(one, graph.options.method)
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
    """

    scales: Floats
    zeros: Zeros
    method: str


def choose(one: ScaleConstraints, method: str) -> Choice:
    """Choose scales and zero points of a group.

    Args:
        one: the group.
        method: minmax, percentile, entropy, mse; auto is as minmax, or exact where the values
            are on a grid.
    """
    if method == "auto" and one.exact is not None:
        return Choice(*_scales(one, *one.exact), "exact")
    name = "minmax" if method == "auto" else method
    return Choice(*_scales(one, *_limits(one, name)), name)


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


def _scales(one: ScaleConstraints, lows: Doubles, highs: Doubles) -> tuple[Floats, Zeros]:
    scales, zeros = scales_for(lows, np.minimum(highs, one.caps), one.centred)
    # A channel without values takes the scale of another, but its bound stays its own.
    return np.minimum(scales, one.caps / (HIGHEST - zeros)).astype(np.float32), zeros


def _errors(one: ScaleConstraints, scales: Floats, zeros: Zeros) -> Doubles:
    """Return the mean squared rounding and clipping error of every slot."""
    steps = one.values / scales[:, None]
    np.rint(steps, out=steps)
    np.clip(steps, (LOWEST - zeros)[:, None], (HIGHEST - zeros)[:, None], out=steps)
    steps *= scales[:, None]
    steps -= one.values
    return np.einsum("kp,kp->k", steps, steps, dtype=np.float64) / steps.shape[1]
