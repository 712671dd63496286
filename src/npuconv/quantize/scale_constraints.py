"""Constraints on the scales of a group of int8 tensors, with range margins for unseen samples.

A new sample exceeds the largest calibrated sample by about as much as the largest exceeds the
second: for values with a Pareto tail both log gaps have the same distribution (A. Renyi,
"On the theory of order statistics", 1953). So the extremes of all channels of a tensor grow by
the median, over its channels, of the ratio of the two largest.

A channel with few active values gets part of the way, in the logarithm, to the range of the
channels that the same layer makes: with n independent values, the weight of the others
is ``1 / (1 + n / 300)``. Values of one sample are correlated, so the values of a map count as the
length of its side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import median

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.statistics import Statistics
from npuconv.legalize.legal import LegalModel
from npuconv.model import Model, Node, query
from npuconv.ops.operator import OPERATORS, values_of
from npuconv.ops.tables import SOURCE, TableStep, evaluate
from npuconv.partition.channels import upper_bound
from npuconv.partition.operators import CUTTING, softmax_behind
from npuconv.partition.placement import Group, Plan
from npuconv.quantize import settings
from npuconv.records import dataclass

Doubles = NDArray[np.float64]


@dataclass
class ScaleConstraints:
    """One group of int8 tensors: its K slots, their values and constraints.

    A slot is a set of channels that must share a scale.
    """

    slots: list[int]  # numbers of the slots in ``Channels``
    lows: Doubles  # smallest values [K], with a margin
    highs: Doubles  # largest values [K], with a margin
    values: NDArray[np.float32]  # some of the values [K,P]
    centred: NDArray[np.bool_]  # whether the zero point must be 0 [K]
    caps: Doubles  # upper bound of a Clip, which no value may exceed; inf without one [K]
    computed: NDArray[np.bool_]  # whether an operator other than a convolution uses the scale [K]
    stored: NDArray[np.bool_]  # whether the zero point must be the same in these slots [K]
    stores_zeros: bool  # whether the file has other zero points than 0
    is_host_made: bool = False

    def cut_off(self, low: float, high: float) -> None:
        """Clip the range of a tensor with one scale, and its values."""
        self.lows[0], self.highs[0] = low, high
        self.values = np.clip(self.values, np.float32(low), np.float32(high))


class ConstraintBuilder:
    """Builder of the constraints of each group, from the plan and the statistics."""

    def __init__(self, graph: LegalModel, stats: Mapping[str, Statistics]) -> None:
        plan, self.channels = graph.plan, graph.channels
        self._stats, self._has_margins = stats, "range-margin" not in graph.options.without
        self._stores_zeros, padded = graph.stores_zeros, graph.padded_tensors
        fills = graph.target.pads_with_zero_point
        self._centred = {*graph.centred_tensors, *(() if fills else padded)}
        # Tensors that a Pad or a convolution fills with one integer for all channels.
        pads = [node for node in plan.passthrough if node.op == "Pad"]
        self._filled = {t.name for node in pads for t in (node.inputs[0], *node.outputs)}
        self._filled |= padded if fills else set()
        cutting = [node for node in plan.passthrough if node.op in CUTTING]
        bounds = {t.name: upper_bound(node) for node in cutting for t in node.outputs}
        # With one scale a Clip has integers for bounds, and need not end where int8 ends.
        one_scale = graph.unsaturated_tensors
        self._cutting = {name: bound for name, bound in bounds.items() if name not in one_scale}
        self._sums = graph.partial_sums
        self._made = {t.name for node in plan.int8_nodes for t in node.outputs}
        self._functions = functions_of(graph.model, plan) if plan.operators else {}
        self._masked = masks_of(graph.model, plan)

    def __call__(self, group: Group) -> ScaleConstraints:
        """Return the constraints of one group of the plan."""
        constraints = self._observe(group)
        output = group.outputs[0] if len(group.outputs) == len(constraints.slots) == 1 else ""
        functions, sums = self._functions.get(output), self._masked.get(output, [])
        if functions:
            constraints.cut_off(
                *within_tables(functions, *constraints.lows.tolist(), *constraints.highs.tolist())
            )
        if sums and all(set(pair) <= self._stats.keys() for pair in sums):
            stats = [(self._stats[summand], self._stats[result]) for summand, result in sums]
            low = min(result.lows.min() - summand.highs.max() for summand, result in stats)
            constraints.cut_off(
                max(float(low), *constraints.lows.tolist()), *constraints.highs.tolist()
            )
        self._constrain(constraints, group)
        return constraints

    def demands(self, group: Group) -> tuple[bool, bool, float]:
        """Return the demands of the device on the scale of a group, for any values.

        Returns:
            Whether its zero point must be 0; whether it must be 0 unless the lowest integer
            represents 0, as after a Relu; and the upper bound of such a Clip.
        """
        names = set(group.tensors)
        bounds = [bound for name, bound in self._cutting.items() if name in names]
        low = bool(bounds) or not names.isdisjoint(self._filled)
        low = low and not self._stores_zeros  # the group has one zero point, which is in the file
        return not names.isdisjoint(self._centred), low, min(bounds, default=np.inf)

    def _observe(self, group: Group) -> ScaleConstraints:
        """Return extremes with margins and values of a group; nothing is constrained yet."""
        channels, stats = self.channels, self._stats
        tails, summed = group.tensors[0] in self._made, not self._sums.isdisjoint(group.tensors)
        slots = sorted({slot for name in group.tensors for slot in channels.slots(name)})
        count, members = len(slots), list[Members]()
        lows, highs = np.full(count, np.inf), np.full(count, -np.inf)
        for name in group.outputs:
            extremes = stats[name].lows.astype(np.float64), stats[name].highs.astype(np.float64)
            if self._has_margins:
                families = channels.families(name)
                extremes = with_margin(stats[name], families, tails=tails, summed=summed)
            numbers = np.asarray(channels.slots(name))
            # Int8 nodes need not read all channels that the host cuts.
            inside = np.flatnonzero(np.isin(numbers, slots))
            places = np.searchsorted(slots, numbers[inside])
            np.minimum.at(lows, places, extremes[0][inside])
            np.maximum.at(highs, places, extremes[1][inside])
            members.append((stats[name].values, inside, places))
        empty = lows > highs
        lows[empty] = highs[empty] = 0
        observations = lows, highs, _values(members, count)
        computed = np.asarray([channels.is_computed(slot) for slot in slots], bool)
        free = np.zeros(count, bool), np.full(count, np.inf)
        return ScaleConstraints(
            slots, *observations, *free, computed, np.zeros(count, bool),
            stores_zeros=self._stores_zeros, is_host_made=not tails,
        )  # fmt: skip

    def _constrain(self, constraints: ScaleConstraints, group: Group) -> None:
        """Set the zero points that must be 0, and the caps."""
        place = {slot: k for k, slot in enumerate(constraints.slots)}
        cut, fill = np.zeros(len(constraints.slots), bool), np.zeros(len(constraints.slots), bool)
        for name in group.tensors:
            indices = [place[slot] for slot in self.channels.slots(name)]
            if name in self._centred:
                constraints.centred[indices] = True
            if name in self._filled:
                fill[indices] = True
            if name in self._cutting:
                cut[indices] = True
                bound = self._cutting[name]
                constraints.caps[indices] = np.minimum(constraints.caps[indices], bound)
        # Saturation replaces a Relu if the lowest integer represents 0 in all channels. Otherwise
        # the Relu stays, and needs one zero point in all channels. The same holds for padding,
        # which fills all channels with one integer, unless the scales of all are computed.
        centred, stored, below = constraints.centred, constraints.stored, constraints.lows < 0
        if constraints.stores_zeros:
            if len(place) > 1:
                stored |= fill | constraints.computed
                stored |= cut & np.any(cut & (below | stored))
                centred |= stored & np.any(stored & centred)
            return
        for slots in (fill, cut, fill, cut, fill):
            alike = slots is cut or np.any(slots & ~constraints.computed)
            if np.any(slots & (centred | (below & alike))):
                centred |= slots


# Values [C,P] of a tensor, some of its channels, and the places of their slots in the group.
Members = tuple[NDArray[np.float32], NDArray[np.intp], NDArray[np.intp]]


def _values(members: list[Members], count: int) -> NDArray[np.float32]:
    """Return equally many values of every slot, spread over its tensors; 0 if there are none."""
    if len(members) == 1 and np.array_equal(members[0][2], range(count)):  # nearly always
        values, channels, _ = members[0]
        if values.size:
            length = values.shape[1]
            return values[channels][:, _places(length, min(length, settings.RANGE_VALUES))]
    parts: list[list[NDArray[np.float32]]] = [[] for _ in range(count)]
    for values, channels, places in members:
        for channel, place in zip(channels.tolist(), places.tolist(), strict=True):
            parts[place].append(values[channel])
    rows = [np.concatenate(row) if row else np.zeros(0, np.float32) for row in parts]
    width = max(1, min(max(map(len, rows)), settings.RANGE_VALUES))
    result = np.zeros((count, width), np.float32)
    for place, row in enumerate(rows):
        if len(row):
            result[place] = row[_places(len(row), width)]
    return result


@lru_cache(maxsize=64)
def _places(length: int, width: int) -> NDArray[np.intp]:
    """Return ``width`` evenly spread positions; some twice if ``length`` is smaller."""
    return np.linspace(0, length - 1, width).astype(np.intp)


def with_margin(
    stats: Statistics, families: Sequence[int] = (), *, tails: bool = True, summed: bool = False
) -> tuple[Doubles, Doubles]:
    """Return extremes with a margin where a channel has few active values.

    Clipping a large value costs more than coarse steps do. This holds for both extremes: a logit
    that is negative in all samples belongs to a class without a sample.

    Args:
        stats: statistics of the tensor.
        families: a number for each channel, equal for channels that one layer makes; if it is
            empty, all channels are of one family.
        tails: whether the two largest samples predict a new one. Not for tensors of the host,
            which are often bounded or on a grid.
        summed: whether the values are partial sums, with the activation behind the sum. No
            activation cuts them off at 0, so their range grows from its middle.

    Returns:
        float64 lows and highs [C]; an extreme of 0 stays, because an activation cuts it off.
    """
    extremes = (stats.lows, stats.highs, stats.second_lows, stats.second_highs)
    low, high, second_low, second_high = (end.astype(np.float64) for end in extremes)
    middle = (low + high) / 2 if summed else np.zeros(stats.channels)
    lows, highs = middle - low, high - middle
    if tails and stats.samples >= settings.MARGIN_SAMPLES_FOR_TAILS:
        lows *= _tail_ratio(lows, middle - second_low)
        highs *= _tail_ratio(highs, second_high - middle)
    weight = weight_of_family(stats)
    if summed:
        growth = 1 + settings.MARGIN_SUM_GROWTH * np.square(weight)
        lows, highs = lows * growth, highs * growth
    if weight.max(initial=0.0) < settings.MARGIN_SMALLEST_WEIGHT or stats.channels == 1:
        return middle - lows, middle + highs
    which = np.unique(families or np.zeros(stats.channels), return_inverse=True)[1]
    floor = settings.MARGIN_SILENT_SHARE * np.maximum(lows, highs)
    below, above = _largest_of_family(lows, which), _largest_of_family(highs, which)
    wide = _towards(lows, floor, below, weight), _towards(highs, floor, above, weight)
    return middle - wide[0], middle + wide[1]


def _tail_ratio(largest: Doubles, second: Doubles) -> float:
    """Return the median, over channels, of the ratio of the two largest; 1 if all are 0."""
    live = (largest > 0) & (second > 0)
    ratios = largest[live] / second[live]
    # The median of numpy imports masked arrays.
    return min(median(ratios.tolist()), settings.MARGIN_LARGEST_TAIL_RATIO) if live.any() else 1.0


def weight_of_family(stats: Statistics) -> Doubles:
    """Return the weight of the family for each channel [C]: 1 without values, towards 0.

    Only active values count, as a channel may be silent in most places.
    """
    active = np.ones(stats.channels)
    if stats.values.size:
        silent = settings.MARGIN_SILENT_SHARE * np.maximum(-stats.lows, stats.highs)
        active = (np.abs(stats.values) > silent[:, None]).mean(axis=1)
    active_count = stats.count / max(stats.samples, 1) * active
    weight = 1 / (1 + stats.samples * np.sqrt(active_count) / settings.MARGIN_HALF_WEIGHT_VALUES)
    return np.asarray(weight, np.float64)


def _towards(extreme: Doubles, floor: Doubles, largest: Doubles, weight: Doubles) -> Doubles:
    """Return extremes moved in the logarithm towards the largest extreme of the family.

    An extreme of 0 counts as ``floor``, if another extreme of the family is above 0.
    """
    wide = np.maximum(np.maximum(extreme, floor), 1e-30) ** (1 - weight) * largest**weight
    inside = np.clip(wide, extreme, np.maximum(largest, extreme))  # powers are not exact
    return np.where(largest > 0, inside, extreme)


def _largest_of_family(extremes: Doubles, which: NDArray[np.intp]) -> Doubles:
    """Return the largest extreme of its family for each channel [C]."""
    largest = np.zeros(int(which.max()) + 1)
    np.maximum.at(largest, which, extremes)
    return np.asarray(largest[which], np.float64)


def masks_of(model: Model, plan: Plan) -> dict[str, list[tuple[str, str]]]:
    """Return the sums with every tensor that is only added to the scores of a Softmax.

    Returns:
        By tensor, the names of the other summand and of the sum, which ends where the Softmax
        ignores it: so the summand may end where every sum is below that.
    """
    sums: dict[str, list[tuple[str, str]]] = {}
    for node in plan.operators:
        values, softmax = values_of(node), softmax_behind(model, node.outputs[0])
        if node.op == "Add" and len(values) == 2 and softmax is not None:
            for tensor, summand in (values, values[::-1]):
                sums.setdefault(tensor.name, []).append((summand.name, softmax.inputs[0].name))
    tensors = {t.name: t for node in plan.operators for t in values_of(node)}
    return {
        name: pairs
        for name, pairs in sums.items()
        if len(query.consumers(tensors[name])) == len(pairs) and not model.is_output(tensors[name])
    }


Functions = Mapping[str, Sequence[Sequence[TableStep]]]


def functions_of(model: Model, plan: Plan) -> Functions:
    """Return the functions of every tensor whose only consumers are tables, by tensor."""
    steps: dict[str, list[TableStep]] = {}
    root: dict[str, str] = {}  # tensor that a table is a function of, by output of the table
    read: dict[str, set[int]] = {}
    for node in plan.operators:
        sources = {root.get(t.name, t.name) for t in values_of(node)}
        if len(sources) != 1 or (step := _step(node, *sources)) is None:
            continue
        (source,) = sources
        steps.setdefault(source, []).append(step)
        read.setdefault(source, set()).update(id(node) for t in values_of(node) if t.name == source)
        if node.outputs[0].name in plan.fused:
            root[node.outputs[0].name] = source
    tensors = {t.name: t for node in plan.operators for t in values_of(node)}
    return {
        source: [chain[: k + 1] for k, step in enumerate(chain) if step.output not in plan.fused]
        for source, chain in steps.items()
        if not model.is_output(tensors[source])
        and read[source] == {id(reader) for reader in query.consumers(tensors[source])}
    }


def _step(node: Node, source: str) -> TableStep | None:
    """Return the operator as a step of a function; None if a constant is no single number."""
    constants = [query.value(t) for t in node.inputs if query.is_constant(t)]
    if any(c is None or c.size != 1 for c in constants):
        return None
    operator = OPERATORS.get(node.op)
    if operator is None or operator.function is None:
        return None
    operands: list[str | float] = []
    for tensor in node.inputs:
        value = query.value(tensor) if query.is_constant(tensor) else None
        name = SOURCE if tensor.name == source else str(tensor.name)
        operands.append(name if value is None else float(value.reshape(-1)[0]))
    return TableStep(node.op, tuple(operands), str(node.outputs[0].name), node.attrs)


def within_tables(
    functions: Sequence[Sequence[TableStep]], low: float, high: float
) -> tuple[float, float]:
    """Return the part of a range outside which no function changes by much of its own step.

    HardSwish is 0 for all numbers below -3. Saturation there loses nothing, and a smaller range
    has a smaller step.
    """
    values = np.linspace(low, high, settings.RANGE_TABLE_VALUES)
    first, last = len(values) - 1, 0
    for steps in functions:
        outputs = evaluate(steps, values)
        if not np.isfinite(outputs).all():
            return low, high
        reach = max(outputs.max(), 0.0) - min(outputs.min(), 0.0)
        allowed = settings.RANGE_TABLE_SHARE * reach / 255
        first = min(first, int(np.argmax(np.abs(outputs - outputs[0]) > allowed)) - 1)
        count_of_last = int(np.argmax(np.abs(outputs - outputs[-1])[::-1] > allowed))
        last = max(last, len(outputs) - count_of_last)
    return float(values[max(first, 0)]), float(values[min(last, len(values) - 1)])
