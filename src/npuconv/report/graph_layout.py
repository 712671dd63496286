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
from collections.abc import Sequence
from itertools import pairwise

from npuconv.records import dataclass, field

BOX, HEIGHT = 184, 42  # width and height of a box
_LINE = 14  # width of a slot of a passing line
_GAP = 18  # between two slots
_PITCH = 72  # distance of two layers, from top to top
_LANE = 6  # distance of two lines that lead from one column to the next
_MARGIN = 18
_WINDOW = (1240.0, 640.0)  # width and height of the screen that the columns should fit

_ORDER_SWEEPS, _SHIFT_SWEEPS = 8, 12  # number of passes over all layers; more improve little
_MAX_SLOTS = 20_000  # largest number of passing lines; networks have a few per box
_MIN_COLUMN, _MAX_COLUMNS = 5, 40  # least layers of a column, most columns of a drawing

Edge = tuple[int, int]


@dataclass
class Layers:
    """Boxes and passing lines in their layers.

    Slots are numbers: first the boxes, then a slot for every layer that a line passes
    through.
    """

    boxes: int  # number of slots that are boxes
    level: list[int]  # number of the layer of each slot
    above: list[list[int]]  # slots one layer up from which lines lead to a slot
    below: list[list[int]]  # slots one layer down to which lines lead from a slot
    rows: list[list[int]] = field(default_factory=list)  # slots of each layer, left to right

    def width(self, slot: int) -> int:
        """Return the width of a slot."""
        return BOX if slot < self.boxes else _LINE


@dataclass(frozen=True)
class Drawing:
    """A drawn graph."""

    width: int
    height: int
    boxes: tuple[tuple[int, int], ...]  # x of the centre and y of the top of every box
    paths: dict[int, str]  # SVG path of all lines that leave a box, by number of the box


def draw(boxes: int, edges: Sequence[Edge]) -> Drawing | None:
    """Draw a graph without cycles.

    Args:
        boxes: number of boxes.
        edges: source and target boxes; a source has the lower number: the order is topological.

    Returns:
        None if there is no box, or if too many lines pass through too many layers.
    """
    layers = arrange(boxes, edges)
    if not boxes or layers is None:
        return None
    widths = [sum(layers.width(slot) + _GAP for slot in row) for row in layers.rows]

    def scale(cuts: Sequence[int]) -> float:
        """Return about the scale at which the columns fit the window."""
        width = sum(max(widths[first:end]) + _MARGIN for first, end in pairwise(cuts))
        height = _PITCH * max(end - first for first, end in pairwise(cuts))
        return min(_WINDOW[0] / width, _WINDOW[1] / height)

    most = max(1, min(_MAX_COLUMNS, len(layers.rows) // _MIN_COLUMN))
    return fold(layers, max((cut(layers, number) for number in range(1, most + 1)), key=scale))


def arrange(boxes: int, edges: Sequence[Edge]) -> Layers | None:
    """Put the boxes of a graph into layers, and order each; None if too many lines pass."""
    consumers: dict[int, list[int]] = {}
    for source, target in edges:
        consumers.setdefault(source, []).append(target)
    level = [0] * boxes  # the longest path to each box
    for source in range(boxes):
        for target in consumers.get(source, ()):
            level[target] = max(level[target], level[source] + 1)
    for source in consumers.keys() - {target for _, target in edges}:
        level[source] = min(level[target] for target in consumers[source]) - 1
    deepest = {source: max(level[t] for t in targets) for source, targets in consumers.items()}
    if sum(row - level[source] - 1 for source, row in deepest.items()) > _MAX_SLOTS:
        return None
    layers = Layers(boxes, level, [[] for _ in level], [[] for _ in level])
    for source, targets in consumers.items():
        slot = source
        for row in range(level[source] + 1, deepest[source] + 1):
            lower = [target for target in targets if level[target] == row]
            if row < deepest[source]:  # the line goes on
                lower.append(len(level))
                level.append(row)
                layers.above.append([])
                layers.below.append([])
            for target in lower:
                layers.above[target].append(slot)
            layers.below[slot] = lower
            slot = lower[-1]
    layers.rows = [[] for _ in range(max(level, default=-1) + 1)]
    for slot, row in enumerate(level):
        layers.rows[row].append(slot)
    _order(layers)
    return layers


def _order(layers: Layers) -> None:
    """Sort every layer by the mean place of its neighbours, up and down; keep the best order."""
    best, fewest = [list(row) for row in layers.rows], crossings(layers)
    for sweep in range(_ORDER_SWEEPS):
        if not fewest:
            break
        is_down = sweep % 2 == 0
        neighbours = layers.above if is_down else layers.below
        places = _places(layers)
        for row in layers.rows if is_down else layers.rows[::-1]:
            means = {s: _mean([places[n] for n in neighbours[s]], places[s]) for s in row}
            row.sort(key=lambda slot: (means[slot], places[slot]))
            places.update((slot, float(place)) for place, slot in enumerate(row))
        if (number := crossings(layers)) < fewest:
            best, fewest = [list(row) for row in layers.rows], number
    layers.rows = best


def _places(layers: Layers) -> dict[int, float]:
    return {slot: float(place) for row in layers.rows for place, slot in enumerate(row)}


def _mean(numbers: Sequence[float], default: float) -> float:
    return sum(numbers) / len(numbers) if numbers else default


def crossings(layers: Layers) -> int:
    """Return the number of pairs of lines that cross between neighbouring layers."""
    places, number = _places(layers), 0
    for row in layers.rows:
        passed: list[float] = []
        for slot in row:
            consumers = [places[lower] for lower in layers.below[slot]]
            number += sum(len(passed) - bisect_right(passed, place) for place in consumers)
            for place in consumers:
                insort(passed, place)
    return number


def shift(layers: Layers, cuts: Sequence[int]) -> list[float]:
    """Return the centre of each slot: in the order of its layer, near its neighbours.

    Args:
        layers: slots in their order.
        cuts: first layer of every column; lines between columns are ignored.
    """
    x, column = [0.0] * len(layers.level), [bisect_right(cuts, row) for row in layers.level]
    below, above = (
        [[n for n in ns if column[n] == column[slot]] for slot, ns in enumerate(side)]
        for side in (layers.below, layers.above)
    )
    settled = list[float]()
    for sweep in range(_SHIFT_SWEEPS + 1):
        is_down = sweep % 2 == 0  # the last sweep, so that a consumer is right below its box
        neighbours = above if is_down else below
        for row in layers.rows if is_down else layers.rows[::-1]:
            _settle(layers, x, row, [_mean([x[n] for n in neighbours[s]], x[s]) for s in row])
        if is_down and x == settled:  # more sweeps would change nothing
            break
        settled = list(x) if is_down else settled
    return x


def _settle(layers: Layers, x: list[float], row: Sequence[int], goals: Sequence[float]) -> None:
    """Place the slots of a row as near to their goals as its order and widths permit.

    Minimizes the sum of squared distances (pool adjacent violators).
    """
    offsets, right = list[float](), 0.0  # centres if all slots touch
    pools: list[tuple[float, int]] = []  # place and number of slots that touch
    for slot, goal in zip(row, goals, strict=True):
        offsets.append(right + layers.width(slot) / 2)
        right += layers.width(slot) + _GAP
        pools.append((goal - offsets[-1], 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (x1, n1), (x2, n2) = pools.pop(), pools.pop()
            pools.append(((x1 * n1 + x2 * n2) / (n1 + n2), n1 + n2))
    places = (place for place, number in pools for _ in range(number))
    for slot, offset, place in zip(row, offsets, places, strict=True):
        x[slot] = place + offset


def cut(layers: Layers, columns: int) -> list[int]:
    """Return the first layer of each column, followed by the number of layers.

    Columns have about the same height, and begin at a layer that few lines enter.
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


def fold(layers: Layers, cuts: Sequence[int]) -> Drawing:
    """Draw the layers in columns; lines lead from one to the next in lanes between them."""
    x, last_rows = shift(layers, cuts), [layers.rows[end - 1] for end in cuts[1:]]
    lanes = {
        slot: _LANE * number
        for row in last_rows
        for number, slot in enumerate((s for s in row if layers.below[s]), 1)
    }
    top, width = _MARGIN + _LANE + max(lanes.values(), default=0), _MARGIN
    gutters = dict[int, int]()  # the x of a line in its lane
    places = dict[int, tuple[int, int]]()  # centre and top of each slot
    for first, end in pairwise(cuts):
        rows = layers.rows[first:end]
        low = min(x[row[0]] - layers.width(row[0]) / 2 for row in rows)
        high = max(x[row[-1]] + layers.width(row[-1]) / 2 for row in rows)
        for number, row in enumerate(rows):
            y = top + number * _PITCH
            places.update((slot, (round(x[slot] - low) + width, y)) for slot in row)
        width += round(high - low) + _MARGIN
        leaving = [slot for slot in rows[-1] if slot in lanes]
        gutters.update((slot, width + lanes[slot]) for slot in leaving)
        width += max((lanes[slot] + _MARGIN for slot in leaving), default=0)

    def path(slot: int) -> str:
        """Return the line from a box to each of its consumers, through the slots between."""
        parts, passing = list[str](), [slot]
        for upper in passing:
            (x1, y1), lane = places[upper], lanes.get(upper)
            y1 += HEIGHT
            for lower in layers.below[upper]:
                x2, y2 = places[lower]
                step, middle = f"V{y2}", (y1 + y2) // 2
                if lane is not None:  # below the column, up between the two, down into the next
                    step = f"V{y1 + lane + 4}H{gutters[upper]}V{y2 - lane - 4}H{x2}V{y2}"
                elif x1 != x2:
                    step = f"C{x1} {middle} {x2} {middle} {x2} {y2}"
                parts.append(f"M{x1} {y1}{step}")
                if lower >= layers.boxes:
                    parts.append(f"v{HEIGHT}")
                    passing.append(lower)
        return "".join(parts)

    return Drawing(
        width=width,
        height=2 * top + (max(b - a for a, b in pairwise(cuts)) - 1) * _PITCH + HEIGHT,
        boxes=tuple(places[box] for box in range(layers.boxes)),
        paths={box: path(box) for box in range(layers.boxes) if layers.below[box]},
    )
