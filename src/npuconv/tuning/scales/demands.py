"""What every slot of channels must satisfy, and who reads it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from npuconv.model import query
from npuconv.plan.shown import shown
from npuconv.tuning.scales.bounds import CUTTING, upper_bound
from npuconv.tuning.scales.exact import exact_ends
from npuconv.tuning.scales.flat import owners
from npuconv.tuning.scales.margins import OUTLOOK, widened
from npuconv.tuning.scales.readers import Reader, reader_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from npuconv.model.core import Model
    from npuconv.model.types import Node
    from npuconv.plan import Group, Plan
    from npuconv.plan.channels import Channels
    from npuconv.quant.grid import Grid
    from npuconv.quant.moments import Moments
    from npuconv.quant.statistics import Statistics

    Ends = tuple[NDArray[np.float64], NDArray[np.float64]]

SPREAD = 1024  # values of one slot that candidates are compared on


@dataclass
class Demand:
    """One group of int8 tensors: its slots, their values, and what is asked of them.

    Attributes:
        slots: number of the slot, as ``Channels`` counts them; K of them.
        lows: exact smallest values [K].
        highs: exact largest values [K].
        values: a spread of the values [K,P].
        centred: zero point must be 0 [K].
        caps: no value above this may be let through [K]: the upper bound of a Clip.
        foreseen: lows and highs that many more samples would show, each [K].
        exact: lows and highs under which all values are integers, each [K]; None where there
            are none.
        samples: the sample that each of these values is of [P], the same for all slots; None
            where it is not, or where a sample has one.
        readers: convolutions that read it.
        host: whether the host reads it.
        room: how many times as large as chosen ranges are to be, up to the caps.
    """

    name: str
    slots: list[int]
    lows: NDArray[np.float64]
    highs: NDArray[np.float64]
    values: NDArray[np.float32]
    centred: NDArray[np.bool_]
    caps: NDArray[np.float64]
    foreseen: Ends
    exact: Ends | None = None
    samples: NDArray[np.int64] | None = None
    readers: list[Reader] = field(default_factory=list)
    host: bool = False
    room: float = 1.0

    @property
    def count(self) -> int:
        """Number of slots."""
        return len(self.slots)

    def roomy(self) -> Demand:
        """The same with the extremes that more samples would show."""
        return replace(self, lows=self.foreseen[0], highs=self.foreseen[1])

    def enlarged(self, factor: float) -> Demand:
        """The same with ranges that are so many times as large as those that are chosen."""
        return replace(self, room=self.room * factor, exact=None)


def demands(
    model: Model,
    plan: Plan,
    channels: Channels,
    stats: Mapping[str, Statistics],
    centred: Sequence[str] = (),
    moments: Mapping[str, Moments] | None = None,
    grids: Mapping[str, Grid] | None = None,
) -> Iterator[Demand]:
    """What is asked of every group, one after the other: each holds weights.

    Args:
        model: the legal float model.
        plan: where every node runs, and the groups.
        channels: which channels share a scale.
        stats: of the ends of every group, and of what convolutions put out.
        centred: tensors whose zero point must be 0 whatever happens.
        moments: of the windows of convolutions, by node name.
        grids: of tensors whose values may be whole steps.
    """
    padded, filled = {*centred, *_padded(plan)}, _filled(plan)
    bounds = {t.name: upper_bound(n) for n in plan.carried if n.op in CUTTING for t in n.outputs}
    # With one scale a Clip has integers for bounds, and need not end where int8 ends.
    cutting = {name: bound for name, bound in bounds.items() if name not in centred}
    readers, last = _readers(plan), {group.name for group in shown(model, plan)}
    for group in plan.groups:
        demand = _demand(group, channels, stats, group.name in last)
        _constrain(demand, group, channels, padded, filled, cutting)
        demand.exact = exact_ends(demand, group, stats, grids or {})
        for name in group.tensors:
            for conv in readers.get(name, ()):
                reader = reader_of(conv, channels, stats, demand.slots, moments or {})
                if reader is not None:
                    demand.readers.append(reader)
        demand.host = _host_reads(model, plan, group)
        yield demand


def _padded(plan: Plan) -> set[str]:
    """Tensors next to which a convolution puts stored zeros."""
    return {c.inputs[0].name for c in plan.device if any(query.attribute(c, "pads", ()) or ())}


def _filled(plan: Plan) -> set[str]:
    """Tensors next to which a carried Pad puts one integer, for all channels."""
    pads = [node for node in plan.carried if node.op == "Pad"]
    return {t.name for node in pads for t in (node.inputs[0], *node.outputs)}


def _readers(plan: Plan) -> dict[str, list[Node]]:
    found: dict[str, list[Node]] = {}
    for conv in plan.device:
        found.setdefault(conv.inputs[0].name, []).append(conv)
    return found


def _demand(
    group: Group, channels: Channels, stats: Mapping[str, Statistics], last: bool
) -> Demand:
    members: dict[int, list[tuple[Statistics, int]]] = {}
    for name in group.tensors:
        for slot in channels.slots(name):
            members.setdefault(slot, [])
    for name in group.ends:
        for channel, slot in enumerate(channels.slots(name)):
            members[slot].append((stats[name], channel))
    slots = sorted(members)
    rows = [members[s] for s in slots]
    lows, highs = _extremes(group, channels, stats, rows, 1.0, last)
    return Demand(
        group.name,
        slots,
        lows,
        highs,
        _values(rows),
        np.zeros(len(slots), bool),
        np.full(len(slots), np.inf),
        _extremes(group, channels, stats, rows, OUTLOOK, last),
        samples=owners(rows, lambda count: _places(count, min(count, SPREAD))),
    )


def _extremes(
    group: Group,
    channels: Channels,
    stats: Mapping[str, Statistics],
    rows: list[list[tuple[Statistics, int]]],
    outlook: float,
    last: bool,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of every slot: those of the channel that reaches farthest."""
    wide = {
        name: widened(stats[name], channels.families(name), outlook, shown=last)
        for name in group.ends
    }
    lows = [min((float(wide[s.name][0][c]) for s, c in row), default=0.0) for row in rows]
    highs = [max((float(wide[s.name][1][c]) for s, c in row), default=0.0) for row in rows]
    return np.asarray(lows), np.asarray(highs)


def _values(rows: list[list[tuple[Statistics, int]]]) -> NDArray[np.float32]:
    """As many values of every slot, spread over its members; a 0 where there are none."""
    most = max((sum(s.values.shape[1] for s, _ in row) for row in rows), default=1)
    width = max(1, min(most, SPREAD))
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


@lru_cache(maxsize=64)
def _places(length: int, width: int) -> NDArray[np.intp]:
    """Which of so many values are taken, evenly spread; some twice where there are too few."""
    return np.linspace(0, length - 1, width).astype(np.intp)


def _constrain(
    demand: Demand,
    group: Group,
    channels: Channels,
    padded: set[str],
    filled: set[str],
    cutting: Mapping[str, float],
) -> None:
    place = {slot: k for k, slot in enumerate(demand.slots)}
    cut, fill = np.zeros(demand.count, bool), np.zeros(demand.count, bool)
    for name in group.tensors:
        at = [place[slot] for slot in channels.slots(name)]
        if name in padded:
            demand.centred[at] = True
        if name in filled:
            fill[at] = True
        if name in cutting:
            cut[at] = True
            demand.caps[at] = np.minimum(demand.caps[at], cutting[name])
    # What a Relu cuts off is cut off by saturation if 0 is the lowest integer. Where it is
    # not, for one channel, the Relu stays, and needs zero point 0 in all of them.
    # The same holds for what a Pad fills with: one integer for all channels.
    for alike in (fill, cut, fill):
        if np.any(alike & (demand.centred | (demand.lows < 0))):
            demand.centred |= alike


def _host_reads(model: Model, plan: Plan, group: Group) -> bool:
    inner = {id(n) for n in (*plan.device, *plan.carried)}
    ends = set(group.ends)
    for node in (*plan.device, *plan.carried):
        for tensor in node.outputs:
            if tensor.name in ends and (
                model.is_output(tensor) or any(id(r) not in inner for r in tensor.outputs)
            ):
                return True
    return False
