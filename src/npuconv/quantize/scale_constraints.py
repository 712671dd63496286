"""Constraints on the scales of a group of int8 tensors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic import grid
from npuconv.model import query
from npuconv.partition.channels import CUTTING, upper_bound
from npuconv.quantize.range_margin import with_margin
from npuconv.quantize.settings import RANGES

if TYPE_CHECKING:
    from npuconv.arithmetic.grid import Grid
    from npuconv.arithmetic.statistics import Statistics
    from npuconv.partition import Group, Plan
    from npuconv.partition.channels import Channels
    from npuconv.quantize.state import DeviceGraph

Doubles = NDArray[np.float64]
Ends = tuple[Doubles, Doubles]


@dataclass
class ScaleConstraints:
    """One group of int8 tensors: its K slots, their values, and what is asked of them.

    A slot is a set of channels that must share a scale.

    Attributes:
        name: of the group.
        slots: numbers, as ``Channels`` counts them.
        lows: smallest values [K], with a margin.
        highs: largest values [K], with a margin.
        values: some of the values [K,P].
        centred: zero point must be 0 [K].
        caps: no value above this may be let through [K]: the upper bound of a Clip.
        samples: the sample that each of these values is of [P], the same for all slots; None
            where it is not, or where a sample has one.
        exact: lows and highs under which all values are integers, each [K]; None where there
            are none.
    """

    name: str
    slots: list[int]
    lows: Doubles
    highs: Doubles
    values: NDArray[np.float32]
    centred: NDArray[np.bool_]
    caps: Doubles
    samples: NDArray[np.int64] | None = None
    exact: Ends | None = None

    @property
    def count(self) -> int:
        """Number of slots, K."""
        return len(self.slots)


class ConstraintsOf:
    """The constraints of every group, made when they are asked for.

    Args:
        graph: a legal float model.
        stats: of the ends of every group.
        grids: of tensors whose values may be whole steps.
        without: steps that are left out: ``range-margin``, ``input-grid``.
    """

    def __init__(
        self,
        graph: DeviceGraph,
        stats: Mapping[str, Statistics],
        grids: Mapping[str, Grid],
        without: Collection[str] = (),
    ) -> None:
        plan, centred, self.channels = graph.plan, graph.uniform_tensors, graph.channels
        self._stats, self._has_margins = stats, "range-margin" not in without
        self._grids = {} if "input-grid" in without else grids
        self._padded, self._filled = {*centred, *_padded(plan)}, _filled(plan)
        cutting = [node for node in plan.passthrough if node.op in CUTTING]
        bounds = {t.name: upper_bound(node) for node in cutting for t in node.outputs}
        # With one scale a Clip has integers for bounds, and need not end where int8 ends.
        self._cutting = {name: bound for name, bound in bounds.items() if name not in centred}
        self._made = {t.name for node in (*plan.device, *plan.passthrough) for t in node.outputs}

    def __call__(self, group: Group) -> ScaleConstraints:
        """Return the constraints of one group of the plan."""
        margins = (self._has_margins, group.tensors[0] in self._made)
        found = _seen(group, self.channels, self._stats, *margins)
        _constrain(found, group, self.channels, self._padded, self._filled, self._cutting)
        found.exact = _exact(found, group, self._stats, self._grids)
        return found


def _padded(plan: Plan) -> set[str]:
    """Tensors next to which a convolution puts stored zeros."""
    return {c.inputs[0].name for c in plan.device if any(query.attribute(c, "pads", ()) or ())}


def _filled(plan: Plan) -> set[str]:
    """Tensors next to which a carried Pad puts one integer, for all channels."""
    pads = [node for node in plan.passthrough if node.op == "Pad"]
    return {t.name for node in pads for t in (node.inputs[0], *node.outputs)}


def _seen(
    group: Group, channels: Channels, stats: Mapping[str, Statistics], margin: bool, tails: bool
) -> ScaleConstraints:
    """Return what the samples have shown of a group.

    Args:
        group: of tensors.
        channels: which channels share a scale.
        stats: of its ends.
        margin: whether its ranges get a margin.
        tails: whether that margin heeds the tails of its values.
    """
    members: dict[int, list[tuple[Statistics, int]]] = {}
    for name in group.tensors:
        for slot in channels.slots(name):
            members.setdefault(slot, [])
    for name in group.outputs:
        for channel, slot in enumerate(channels.slots(name)):
            members[slot].append((stats[name], channel))
    slots = sorted(members)
    rows, count = [members[s] for s in slots], len(members)
    wide = {
        name: _ends(stats[name], channels.families(name), margin, tails) for name in group.outputs
    }
    lows = [min((float(wide[s.name][0][c]) for s, c in row), default=0.0) for row in rows]
    highs = [max((float(wide[s.name][1][c]) for s, c in row), default=0.0) for row in rows]
    found = np.asarray(lows), np.asarray(highs), _values(rows)
    return ScaleConstraints(
        group.name, slots, *found, np.zeros(count, bool), np.full(count, np.inf), _samples(rows)
    )


def _ends(stats: Statistics, families: Sequence[int], margin: bool, tails: bool) -> Ends:
    if margin:
        return with_margin(stats, families, tails=tails)
    return stats.lows.astype(np.float64), stats.highs.astype(np.float64)


def _values(rows: list[list[tuple[Statistics, int]]]) -> NDArray[np.float32]:
    """Return as many values of every slot, spread over its members; a 0 where there are none."""
    most = max((sum(s.values.shape[1] for s, _ in row) for row in rows), default=1)
    width = max(1, min(most, RANGES.values))
    tensors = {id(s): s for row in rows for s, _ in row}
    if most and len(tensors) == 1 and all(len(row) == 1 for row in rows):  # nearly always
        (only,) = tensors.values()
        return only.values[[row[0][1] for row in rows]][:, _places(only.values.shape[1], width)]
    result = np.zeros((len(rows), width), np.float32)
    for place, row in enumerate(rows):
        parts = [s.values[c] for s, c in row]
        joined = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else result[place]
        if len(joined):
            result[place] = joined[_places(len(joined), width)]
    return result


def _samples(rows: list[list[tuple[Statistics, int]]]) -> NDArray[np.int64] | None:
    """Return the sample that each value is of, where all slots have them of the same."""
    tensors = list({id(s): s for row in rows for s, _ in row}.values())
    every = [np.repeat(s.numbers, s.widths) for s in tensors]
    if not every or not every[0].size or any(len(row) != 1 for row in rows):
        return None
    if any(not np.array_equal(every[0], other) for other in every[1:]):
        return None
    found = every[0][_places(every[0].size, min(every[0].size, RANGES.values))]
    return found if np.unique(found).size < found.size else None


@lru_cache(maxsize=64)
def _places(length: int, width: int) -> NDArray[np.intp]:
    """Return which of so many values are taken, evenly spread; some twice where they are few."""
    return np.linspace(0, length - 1, width).astype(np.intp)


def _constrain(
    found: ScaleConstraints,
    group: Group,
    channels: Channels,
    padded: set[str],
    filled: set[str],
    cutting: Mapping[str, float],
) -> None:
    place = {slot: k for k, slot in enumerate(found.slots)}
    cut, fill = np.zeros(found.count, bool), np.zeros(found.count, bool)
    for name in group.tensors:
        at = [place[slot] for slot in channels.slots(name)]
        if name in padded:
            found.centred[at] = True
        if name in filled:
            fill[at] = True
        if name in cutting:
            cut[at] = True
            found.caps[at] = np.minimum(found.caps[at], cutting[name])
    # What a Relu cuts off is cut off by saturation if 0 is the lowest integer. Where it is
    # not, for one channel, the Relu stays, and needs zero point 0 in all of them.
    # The same holds for what a Pad fills with: one integer for all channels.
    for alike in (fill, cut, fill):
        if np.any(alike & (found.centred | (found.lows < 0))):
            found.centred |= alike


def _exact(
    found: ScaleConstraints,
    group: Group,
    stats: Mapping[str, Statistics],
    grids: Mapping[str, Grid],
) -> Ends | None:
    """Return ranges under which int8 holds every value that was seen: those of pixels.

    Only a group of a single tensor with a slot for each channel can have them, and only if no
    value is off the grid.
    """
    own = grids.get(group.name)
    if own is None or len(group.tensors) > 1 or len(own.steps) != found.count:
        return None
    seen, lows, highs = stats[group.name], found.lows.copy(), found.highs.copy()
    on = grid.keep(seen.values, own.steps, -own.offsets) & ~found.centred
    ends = {k: grid.covering(seen.lows[k], seen.highs[k], own.steps[k]) for k in np.where(on)[0]}
    held = {k: pair for k, pair in ends.items() if pair is not None}
    for k, pair in held.items():
        lows[k], highs[k] = pair
    return (lows, highs) if held else None
