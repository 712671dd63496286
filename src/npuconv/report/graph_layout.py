"""Layout of the boxes of a graph: layers from top to bottom, folded into columns.

The layered method of K. Sugiyama, S. Tagawa and M. Toda, "Methods for visual understanding
of hierarchical system structures" (1981): layers by the longest path, lines that pass
through a layer take a slot in it, slots are ordered by the mean place of their neighbours,
and moved sideways so that lines are straight. All lines from one box share one route. A tall
graph is then folded into columns side by side, so that all of it fits on a screen.

Sizes are pixels at 100 %.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

BOX, HEIGHT = 184, 42  # width and height of a box
_LINE = 14  # width of a slot of a passing line
_GAP = 18  # between two slots
_PITCH = 72  # from one layer to the next
_LANE = 6  # between lines on the way from one column to the next
_MARGIN = 18
_WINDOW = (1240.0, 640.0)  # width and height that the columns are chosen for

_ORDER_SWEEPS, _SHIFT_SWEEPS = 8, 12  # over all layers; more improve little
_LINE_WEIGHT = 4.0  # of a passing line against a box: it would rather be straight than centred
_MAX_SLOTS = 20_000  # of passing lines; in a graph with more, long lines take none
_MAX_SPAN = 40  # layers that a line with slots passes in such a graph
_MAX_COLUMNS = 40
_MIN_COLUMN = 5  # layers
_COLUMN_COST = 0.97  # factor on the scale by which each column must pay

Edge = tuple[int, int]


@dataclass
class Layers:
    """Boxes and passing lines in their layers.

    Slots are numbers: first the boxes, then a slot for every layer that a line passes
    through.
    """

    boxes: int  # number of slots that are boxes
    rows: list[list[int]]  # the slots of each layer, from left to right
    level: list[int]  # the layer of each slot
    above: list[list[int]]  # the slots a slot is reached from, one layer up
    below: list[list[int]]  # the slots it leads to, one layer down
    x: list[float] = field(default_factory=list)  # the centre of each slot
    far: list[Edge] = field(default_factory=list)  # edges that are too long to take slots

    def width(self, slot: int) -> int:
        """Return the width of a slot."""
        return BOX if slot < self.boxes else _LINE

    def link(self, upper: int, lower: int) -> None:
        """Lead a line from a slot to a slot in the next layer."""
        self.below[upper].append(lower)
        self.above[lower].append(upper)


def arrange(boxes: int, edges: Sequence[Edge]) -> Layers:
    """Put the boxes of a graph without cycles into layers.

    Args:
        boxes: number of boxes.
        edges: from and to; the first number is the lower, so boxes are in topological order.
    """
    consumers: dict[int, list[int]] = {}
    for source, target in edges:
        consumers.setdefault(source, []).append(target)
    level = [0] * boxes  # the longest path to each box
    for source in range(boxes):
        for target in consumers.get(source, ()):
            level[target] = max(level[target], level[source] + 1)
    for source in consumers.keys() - {target for _, target in edges}:
        level[source] = min(level[target] for target in consumers[source]) - 1
    layers = Layers(boxes, [], level, [[] for _ in level], [[] for _ in level])
    spans = (max(level[t] for t in targets) - level[s] - 1 for s, targets in consumers.items())
    longest = _MAX_SPAN if sum(spans) > _MAX_SLOTS else len(edges) + boxes
    for source, targets in consumers.items():
        near = [target for target in targets if level[target] - level[source] <= longest]
        layers.far += [(source, target) for target in targets if target not in near]
        _lead(layers, source, near)
    layers.rows = [[] for _ in range(max(level, default=-1) + 1)]
    for slot, row in enumerate(layers.level):
        layers.rows[row].append(slot)
    _order(layers)
    shift(layers, [0])
    return layers


def _lead(layers: Layers, source: int, targets: list[int]) -> None:
    """Add one line from a box down through the layers, with a branch to each of its consumers."""
    last, slot = max((layers.level[target] for target in targets), default=0), source
    for level in range(layers.level[source] + 1, last + 1):
        for target in targets:
            if layers.level[target] == level:
                layers.link(slot, target)
        if level < last:
            layers.level.append(level)
            layers.above.append([])
            layers.below.append([])
            layers.link(slot, len(layers.level) - 1)
            slot = len(layers.level) - 1


def _order(layers: Layers) -> None:
    """Sort every layer by the mean place of its neighbours, up and down; keep the best order."""
    best, fewest = [list(row) for row in layers.rows], _crossings(layers)
    for sweep in range(_ORDER_SWEEPS):
        if not fewest:
            break
        down = sweep % 2 == 0
        neighbours = layers.above if down else layers.below
        places = _places(layers)
        for row in layers.rows if down else layers.rows[::-1]:
            means = {s: _mean([places[n] for n in neighbours[s]], places[s]) for s in row}
            row.sort(key=lambda slot: (means[slot], places[slot]))
            places.update((slot, float(place)) for place, slot in enumerate(row))
        crossings = _crossings(layers)
        if crossings < fewest:
            best, fewest = [list(row) for row in layers.rows], crossings
    layers.rows = best


def _places(layers: Layers) -> dict[int, float]:
    return {slot: float(place) for row in layers.rows for place, slot in enumerate(row)}


def _mean(numbers: Sequence[float], default: float) -> float:
    return sum(numbers) / len(numbers) if numbers else default


def _crossings(layers: Layers) -> int:
    """Return the number of pairs of lines that cross between neighbouring layers."""
    places, crossings = _places(layers), 0
    for row in layers.rows:
        passed: list[float] = []
        for slot in row:
            consumer_places = [places[lower] for lower in layers.below[slot]]
            crossings += sum(len(passed) - bisect_right(passed, place) for place in consumer_places)
            for place in consumer_places:
                insort(passed, place)
    return crossings


def shift(layers: Layers, cuts: Sequence[int]) -> None:
    """Move slots sideways, without changing their order, towards their neighbours.

    Args:
        layers: whose slots.
        cuts: the first layer of every column; lines between columns have no weight.
    """
    layers.x, level = [0.0] * len(layers.level), layers.level
    column = [sum(cut <= row for cut in cuts) for row in range(len(layers.rows))]
    below, above = (
        [[n for n in ns if column[level[n]] == column[level[slot]]] for slot, ns in enumerate(side)]
        for side in (layers.below, layers.above)
    )
    for row in layers.rows:
        _settle(layers, row, [0.0] * len(row), [1.0] * len(row))
    for sweep in range(_SHIFT_SWEEPS):
        down = sweep % 2 == 1  # the last one, so that a consumer stands right below its box
        neighbours = above if down else below
        for row in layers.rows if down else layers.rows[::-1]:
            goals = [_mean([layers.x[n] for n in neighbours[s]], layers.x[s]) for s in row]
            # A line that goes on as a line is stiffer than its ends.
            weights = [
                _LINE_WEIGHT if min([slot, *neighbours[slot]]) >= layers.boxes else 1.0
                for slot in row
            ]
            _settle(layers, row, goals, weights)


def _settle(
    layers: Layers, row: Sequence[int], goals: Sequence[float], weights: Sequence[float]
) -> None:
    """Place the slots of a row as near to their goals as its order and widths permit.

    Minimizes the weighted sum of squared distances (pool adjacent violators).
    """
    offsets, right = [], 0.0  # of the centres, where all slots touch
    pools: list[tuple[float, float, int]] = []  # weight, place and number of slots that touch
    for slot, goal, weight in zip(row, goals, weights, strict=True):
        offsets.append(right + layers.width(slot) / 2)
        right += layers.width(slot) + _GAP
        pools.append((weight, goal - offsets[-1], 1))
        while len(pools) > 1 and pools[-2][1] > pools[-1][1]:
            (w1, x1, n1), (w2, x2, n2) = pools.pop(), pools.pop()
            pools.append((w1 + w2, (x1 * w1 + x2 * w2) / (w1 + w2), n1 + n2))
    places = (place for _, place, number in pools for _ in range(number))
    for slot, offset, place in zip(row, offsets, places, strict=True):
        layers.x[slot] = place + offset


@dataclass(frozen=True)
class Drawing:
    """A drawn graph."""

    width: int
    height: int
    boxes: tuple[tuple[int, int], ...]  # the centre and the top of every box
    paths: dict[int, str]  # SVG paths of the lines from every box that has any
    far: tuple[str, ...]  # SVG paths of lines that are too long to be led around boxes


def draw(layers: Layers) -> Drawing:
    """Fold the layers into columns and draw the lines."""
    if not layers.rows:
        return Drawing(0, 0, (), {}, ())

    def scale(cuts: Sequence[int]) -> float:
        """Return the scale at which the drawing fits the window, reduced for each column."""
        columns = _Columns(layers, cuts)
        fit = min(_WINDOW[0] / columns.width, _WINDOW[1] / columns.height)
        return float(fit * _COLUMN_COST ** len(cuts))

    most = max(1, min(_MAX_COLUMNS, len(layers.rows) // _MIN_COLUMN))
    cuts = max((_cut(layers, columns) for columns in range(1, most + 1)), key=scale)
    shift(layers, cuts)
    return _Columns(layers, cuts).drawing()


def _cut(layers: Layers, columns: int) -> list[int]:
    """Return the first layer of each column, and behind them the number of layers.

    Columns are of about the same height, and begin where few lines pass.
    """
    total = len(layers.rows)
    slack = total // columns // 7
    lines = [len({up for s in row for up in layers.above[s]}) for row in layers.rows]
    cuts = [0]
    for number in range(1, columns):
        middle = total * number // columns
        near = range(max(middle - slack, cuts[-1] + 2), min(middle + slack, total - 2) + 1)
        cuts.append(min(near, key=lambda row: (lines[row], abs(row - middle), row)))
    return [*cuts, total]


class _Columns:
    """Layers folded into columns."""

    def __init__(self, layers: Layers, cuts: Sequence[int]) -> None:
        self.layers = layers
        self.column = [column for column, (a, b) in enumerate(pairwise(cuts)) for _ in range(a, b)]
        self.first = [cuts[column] for column in self.column]
        # By first layer of a column, the slots that lead to it, each with its lane.
        self.lanes = {
            cut: {
                s: lane for lane, s in enumerate(s for s in layers.rows[cut - 1] if layers.below[s])
            }
            for cut in cuts[1:-1]
        }
        most = max((len(lanes) for lanes in self.lanes.values()), default=0)
        self.top = _MARGIN + _LANE * (most + 1)
        self.rows = max(b - a for a, b in pairwise(cuts))
        self.gutter: dict[int, float] = {}
        self.shift: list[float] = []
        right = float(_MARGIN)
        for first, last in pairwise(cuts):
            rows = self.layers.rows[first:last]
            low = min(self._left_edge(row[0]) for row in rows)
            high = max(self._left_edge(row[-1]) + self.layers.width(row[-1]) for row in rows)
            self.shift.append(right - low)
            right += high - low + _MARGIN
            if last in self.lanes:
                self.gutter[last] = right
                right += _LANE * len(self.lanes[last]) + _MARGIN
        self.width = round(right)
        self.height = 2 * self.top + (self.rows - 1) * _PITCH + HEIGHT

    def _left_edge(self, slot: int) -> float:
        return self.layers.x[slot] - self.layers.width(slot) / 2

    def drawing(self) -> Drawing:
        """Return the drawing: the positions of all boxes and the paths of all lines."""
        layers = self.layers
        sources = [box for box in range(layers.boxes) if layers.below[box]]
        return Drawing(
            width=self.width,
            height=self.height,
            boxes=tuple((self._x(box), self._y(box)) for box in range(layers.boxes)),
            paths={box: "".join(self._path(box)) for box in sources},
            far=tuple(self._far(*edge) for edge in layers.far),
        )

    def _x(self, slot: int) -> int:
        return round(self.layers.x[slot] + self.shift[self.column[self.layers.level[slot]]])

    def _y(self, slot: int) -> int:
        level = self.layers.level[slot]
        return self.top + (level - self.first[level]) * _PITCH

    def _path(self, source: int) -> Iterator[str]:
        """Yield the line from a box: down through its slots, with a branch to every reader."""
        slot: int | None = source
        while slot is not None:
            x, bottom, following = self._x(slot), self._y(slot) + HEIGHT, None
            for lower in self.layers.below[slot]:
                yield f"M{x} {bottom}{self._step(slot, lower)}"
                if lower >= self.layers.boxes:
                    yield f"v{HEIGHT}"
                    following = lower
            slot = following

    def _step(self, upper: int, lower: int) -> str:
        """Return the path from the bottom of a slot to the top of a slot in the next layer."""
        x1, y1, x2, y2 = self._line(upper, lower)
        level = self.layers.level[lower]
        if level in self.lanes:  # below the column, up between the two, and down into the next
            lane = _LANE * (self.lanes[level][upper] + 1)
            across = round(self.gutter[level]) + lane
            return f"V{y1 + lane + 4}H{across}V{y2 - lane - 4}H{x2}V{y2}"
        if x1 == x2:
            return f"V{y2}"
        middle = (y1 + y2) // 2
        return f"C{x1} {middle} {x2} {middle} {x2} {y2}"

    def _far(self, source: int, target: int) -> str:
        x1, y1, x2, y2 = self._line(source, target)
        return f"M{x1} {y1}C{x1} {y1 + _PITCH} {x2} {y2 - _PITCH} {x2} {y2}"

    def _line(self, upper: int, lower: int) -> tuple[int, int, int, int]:
        """Return x and y of the bottom of a slot, and of the top of another."""
        return self._x(upper), self._y(upper) + HEIGHT, self._x(lower), self._y(lower)
