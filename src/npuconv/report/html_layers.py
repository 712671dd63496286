"""Layout of the boxes of a graph: layers from top to bottom, with few crossing lines.

The layered method of K. Sugiyama, S. Tagawa and M. Toda, "Methods for visual understanding
of hierarchical system structures" (1981): layers by the longest path, lines that pass
through a layer take a slot in it, slots are ordered by the mean place of their neighbours,
and moved sideways so that lines are straight. All lines from one box share one route.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

BOX, LINE = 184, 14  # how wide a slot is: that of a box, and that of a line
GAP = 18  # between two slots
_ORDERINGS, _SHIFTS = 8, 12  # sweeps over all layers
_STIFF = 4.0  # a line that passes through would rather be straight than a box in the middle
_MOST_SLOTS = 20_000  # more lines than that, and long ones take no slots
_LONG = 40

Edge = tuple[int, int]


@dataclass
class Layers:
    """Boxes and passing lines in their layers.

    Slots are numbers: first those of the boxes, then one for every layer that a line
    passes through.

    Attributes:
        boxes: how many slots are boxes.
        rows: the slots of each layer, from left to right.
        level: the layer of each slot.
        above: the slots a slot is reached from, one layer up.
        below: the slots it leads to, one layer down.
        x: the centre of each slot.
        far: edges that are too long to take slots.
    """

    boxes: int
    rows: list[list[int]]
    level: list[int]
    above: list[list[int]]
    below: list[list[int]]
    x: list[float] = field(default_factory=list)
    far: list[Edge] = field(default_factory=list)

    def width(self, slot: int) -> int:
        """Return the width of a slot."""
        return BOX if slot < self.boxes else LINE


def arrange(boxes: int, edges: Sequence[Edge]) -> Layers:
    """Layers of a graph without cycles.

    Args:
        boxes: how many there are.
        edges: from and to; the first number is the lower, so boxes are in topological order.
    """
    layers = _build(boxes, edges)
    _order(layers)
    shift(layers, [0])
    return layers


def _levels(boxes: int, edges: Iterable[Edge]) -> list[int]:
    """The longest path to each box; one that nothing leads to stands right above its reader."""
    level, reached = [0] * boxes, [False] * boxes
    nearest: dict[int, int] = {}
    listed = sorted(edges, key=lambda edge: edge[1])
    for source, target in listed:
        level[target] = max(level[target], level[source] + 1)
        reached[target] = True
    for source, target in listed:
        nearest[source] = min(nearest.get(source, level[target]), level[target])
    for box, below in nearest.items():
        if not reached[box]:
            level[box] = below - 1
    return level


def _build(boxes: int, edges: Sequence[Edge]) -> Layers:
    level = _levels(boxes, edges)
    readers: dict[int, list[int]] = {}
    for source, target in edges:
        readers.setdefault(source, []).append(target)
    spans = [max(level[t] for t in found) - level[s] - 1 for s, found in readers.items()]
    longest = _LONG if sum(spans) > _MOST_SLOTS else len(edges) + boxes
    layers = Layers(boxes, [], level, [[] for _ in level], [[] for _ in level])
    for source, found in readers.items():
        near = [t for t in found if level[t] - level[source] <= longest]
        layers.far += [(source, t) for t in found if t not in near]
        _lead(layers, source, near)
    layers.rows = [[] for _ in range(max(level, default=-1) + 1)]
    for slot, at in enumerate(layers.level):
        layers.rows[at].append(slot)
    return layers


def _lead(layers: Layers, source: int, targets: list[int]) -> None:
    """One line from a box down through the layers, with a branch to each of its readers."""
    by_level: dict[int, list[int]] = {}
    for target in targets:
        by_level.setdefault(layers.level[target], []).append(target)
    last, at = max(by_level, default=0), source
    for level in range(layers.level[source] + 1, last + 1):
        for target in by_level.get(level, ()):
            _link(layers, at, target)
        if level < last:
            layers.level.append(level)
            layers.above.append([])
            layers.below.append([])
            _link(layers, at, len(layers.level) - 1)
            at = len(layers.level) - 1


def _link(layers: Layers, upper: int, lower: int) -> None:
    layers.below[upper].append(lower)
    layers.above[lower].append(upper)


def _order(layers: Layers) -> None:
    """Sort every layer by its neighbours' places, up and down; the best is kept."""
    best, least = [list(row) for row in layers.rows], _crossings(layers)
    for sweep in range(_ORDERINGS):
        if not least:
            break
        down = sweep % 2 == 0
        neighbours = layers.above if down else layers.below
        rows = layers.rows if down else layers.rows[::-1]
        places = _places(layers)
        for row in rows:
            _sort(row, neighbours, places)
        crossed = _crossings(layers)
        if crossed < least:
            best, least = [list(row) for row in layers.rows], crossed
    layers.rows = best


def _places(layers: Layers) -> list[float]:
    places = [0.0] * len(layers.level)
    for row in layers.rows:
        for place, slot in enumerate(row):
            places[slot] = float(place)
    return places


def _sort(row: list[int], neighbours: list[list[int]], places: list[float]) -> None:
    wanted = {slot: _mean([places[n] for n in neighbours[slot]], places[slot]) for slot in row}
    row.sort(key=lambda slot: (wanted[slot], places[slot]))
    for place, slot in enumerate(row):
        places[slot] = float(place)


def _mean(numbers: Sequence[float], default: float) -> float:
    return sum(numbers) / len(numbers) if numbers else default


def _crossings(layers: Layers) -> int:
    """Return the number of pairs of lines that cross between neighbouring layers."""
    places, total = _places(layers), 0
    for row in layers.rows:
        seen: list[float] = []
        for slot in row:
            ends = [places[lower] for lower in layers.below[slot]]
            total += sum(len(seen) - bisect_right(seen, end) for end in ends)
            for end in ends:
                insort(seen, end)
    return total


def shift(layers: Layers, cuts: Sequence[int]) -> None:
    """Move slots sideways, without changing their order, towards their neighbours.

    Args:
        layers: whose slots.
        cuts: the first layer of every column; lines between columns pull at nothing.
    """
    layers.x = [0.0] * len(layers.level)
    column = [sum(cut <= level for cut in cuts) for level in range(len(layers.rows))]
    near = (_inside(layers, layers.below, column), _inside(layers, layers.above, column))
    for row in layers.rows:
        _settle(layers, row, [0.0] * len(row), [1.0] * len(row))
    for sweep in range(_SHIFTS):
        down = sweep % 2 == 1  # the last is: what follows a box stands right below it
        for row in layers.rows if down else layers.rows[::-1]:
            wanted = [_mean([layers.x[n] for n in near[down][s]], layers.x[s]) for s in row]
            _settle(layers, row, wanted, [_weight(layers, s, near[down][s]) for s in row])


def _weight(layers: Layers, slot: int, near: Sequence[int]) -> float:
    """A line that goes on as a line stays where it is; where one begins, both sides give way."""
    passes = slot >= layers.boxes and all(one >= layers.boxes for one in near)
    return _STIFF if passes else 1.0


def _inside(
    layers: Layers, neighbours: Sequence[Sequence[int]], column: Sequence[int]
) -> list[list[int]]:
    """The neighbours of every slot that are in the same column."""
    level = layers.level
    return [
        [one for one in found if column[level[one]] == column[level[slot]]]
        for slot, found in enumerate(neighbours)
    ]


class _Block(NamedTuple):
    """Slots side by side that touch: their weight, their common place, and their number."""

    weight: float
    place: float
    slots: int


def _settle(
    layers: Layers, row: Sequence[int], wanted: Sequence[float], weights: Sequence[float]
) -> None:
    """Every slot as near to where it wants to be as the others let it.

    The sum of squared distances, weighted, is least (pool adjacent violators).
    """
    offsets, blocks = _offsets(layers, row), list[_Block]()
    for offset, place, weight in zip(offsets, wanted, weights, strict=True):
        blocks.append(_Block(weight, place - offset, 1))
        while len(blocks) > 1 and blocks[-2].place > blocks[-1].place:
            blocks.append(_pool(blocks.pop(), blocks.pop()))
    places = (block.place for block in blocks for _ in range(block.slots))
    for slot, offset, place in zip(row, offsets, places, strict=True):
        layers.x[slot] = place + offset


def _offsets(layers: Layers, row: Sequence[int]) -> list[float]:
    """Return the smallest distance of each slot from the left end of the row."""
    offsets, right = [], 0.0
    for slot in row:
        half = layers.width(slot) / 2
        offsets.append(right + half)
        right += 2 * half + GAP
    return offsets


def _pool(one: _Block, other: _Block) -> _Block:
    weight = one.weight + other.weight
    place = (one.place * one.weight + other.place * other.weight) / weight
    return _Block(weight, place, one.slots + other.slots)
