"""A tall graph folded into columns side by side, so that all of it fits on a screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from npuconv.report.html_layers import Layers, shift

HEIGHT = 42  # of a box
PITCH = 72  # from one layer to the next
_VIEW = (1240.0, 640.0)  # the window it is made to fit
_MOST, _SHORTEST = 40, 5  # columns at most, layers in one at least
_FEWER = 0.97  # what one more column must bring
_LANE = 6  # between lines on the way from one column to the next
_MARGIN = 18


@dataclass(frozen=True)
class Drawing:
    """A graph on paper.

    Attributes:
        width: of all, in pixels at 100 %.
        height: of all.
        boxes: the centre and the top of every box.
        paths: SVG paths of the lines from every box that has any.
        far: SVG paths of lines that are too long to be led around boxes.
    """

    width: int
    height: int
    boxes: tuple[tuple[int, int], ...]
    paths: dict[int, str]
    far: tuple[str, ...]


def draw(layers: Layers) -> Drawing:
    """Fold the layers into columns and draw the lines."""
    if not layers.rows:
        return Drawing(0, 0, (), {}, ())
    cuts = _cuts(layers)
    shift(layers, cuts)
    return _Sheet(layers, cuts).drawing()


def _cuts(layers: Layers) -> list[int]:
    """The first layer of every column, and behind them the number of layers."""
    most = max(1, min(_MOST, len(layers.rows) // _SHORTEST))
    return max((_cut(layers, count) for count in range(1, most + 1)), key=lambda c: _fit(layers, c))


def _cut(layers: Layers, columns: int) -> list[int]:
    """Columns of about the same height, parted where few lines pass."""
    total = len(layers.rows)
    slack = total // columns // 7
    cuts = [0]
    for number in range(1, columns):
        middle = total * number // columns
        near = range(max(middle - slack, cuts[-1] + 2), min(middle + slack, total - 2) + 1)
        cuts.append(min(near, key=lambda at: (_lines(layers, at), abs(at - middle), at)))
    return [*cuts, total]


def _lines(layers: Layers, row: int) -> int:
    """Return the number of lines that reach a layer from above."""
    return len({upper for slot in layers.rows[row] for upper in layers.above[slot]})


def _fit(layers: Layers, cuts: Sequence[int]) -> float:
    """Return the scale at which the drawing fits the window, reduced for each column."""
    sheet = _Sheet(layers, cuts)
    scale = min(_VIEW[0] / sheet.width, _VIEW[1] / sheet.height)
    return float(scale * _FEWER ** len(cuts))


class _Sheet:
    """Layers folded at some places."""

    def __init__(self, layers: Layers, cuts: Sequence[int]) -> None:
        self.layers = layers
        self.column = [at for at, (a, b) in enumerate(pairwise(cuts)) for _ in range(a, b)]
        self.first = [cuts[column] for column in self.column]
        self.lanes = self._lanes(cuts[1:-1])
        most = max((len(lanes) for lanes in self.lanes.values()), default=0)
        self.top = _MARGIN + _LANE * (most + 1)
        self.rows = max(b - a for a, b in pairwise(cuts))
        self.gutter: dict[int, float] = {}
        self.shift: list[float] = []
        self.width = round(self._place(cuts))
        self.height = 2 * self.top + (self.rows - 1) * PITCH + HEIGHT

    def _lanes(self, cuts: Sequence[int]) -> dict[int, dict[int, int]]:
        """Return, by first layer of a column, the slots that lead to it, each with its lane."""
        rows, below = self.layers.rows, self.layers.below
        return {
            cut: {s: at for at, s in enumerate(s for s in rows[cut - 1] if below[s])}
            for cut in cuts
        }

    def _place(self, cuts: Sequence[int]) -> float:
        """Put the columns side by side; the width of all."""
        right = float(_MARGIN)
        for first, last in pairwise(cuts):
            ends = [self._ends(row) for row in self.layers.rows[first:last]]
            low, high = min(e[0] for e in ends), max(e[1] for e in ends)
            self.shift.append(right - low)
            right += high - low + _MARGIN
            if last in self.lanes:
                self.gutter[last] = right
                right += _LANE * len(self.lanes[last]) + _MARGIN
        return right

    def _ends(self, row: Sequence[int]) -> tuple[float, float]:
        layers = self.layers
        first, last = row[0], row[-1]
        low = layers.x[first] - layers.width(first) / 2
        return low, layers.x[last] + layers.width(last) / 2

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
        return self.top + (level - self.first[level]) * PITCH

    def _path(self, source: int) -> Iterator[str]:
        """The line from a box: down through its slots, with a branch to every reader."""
        at: int | None = source
        while at is not None:
            x, bottom, following = self._x(at), self._y(at) + HEIGHT, None
            for lower in self.layers.below[at]:
                yield f"M{x} {bottom}{self._step(at, lower)}"
                if lower >= self.layers.boxes:
                    yield f"v{HEIGHT}"
                    following = lower
            at = following

    def _step(self, upper: int, lower: int) -> str:
        """Return the path from the bottom of a slot to the top of one in the next layer."""
        (x1, y1), (x2, y2) = (
            (self._x(upper), self._y(upper) + HEIGHT),
            (self._x(lower), self._y(lower)),
        )
        level = self.layers.level[lower]
        if level in self.lanes:
            return self._around(upper, level, y1, x2, y2)
        if x1 == x2:
            return f"V{y2}"
        middle = (y1 + y2) // 2
        return f"C{x1} {middle} {x2} {middle} {x2} {y2}"

    def _around(self, upper: int, level: int, y1: int, x2: int, y2: int) -> str:
        """Below the column, up between the two, and down into the next."""
        lane = _LANE * (self.lanes[level][upper] + 1)
        return f"V{y1 + lane + 4}H{round(self.gutter[level]) + lane}V{y2 - lane - 4}H{x2}V{y2}"

    def _far(self, source: int, target: int) -> str:
        x1, y1 = self._x(source), self._y(source) + HEIGHT
        x2, y2 = self._x(target), self._y(target)
        return f"M{x1} {y1}C{x1} {y1 + PITCH} {x2} {y2 - PITCH} {x2} {y2}"
