"""SQNR against time as a picture: SVG by hand, anything else by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from recipes.table import Row

# Beyond this many dB a model has nothing to lose, and would squeeze the others together.
_LOSSLESS = 100
_AXES = ("wall time / float run on the same samples", "SQNR, dB")
_COLORS = ("#d62728", "#ff7f0e", "#1f77b4", "#17becf", "#2ca02c", "#98df8a", "#9467bd", "#8c564b")
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 760, 480, 60, 440


def plot(rows: Sequence[Row], path: Path) -> Path:
    """SQNR against wall time, a dot per model and contender.

    Args:
        rows: those with an error, and those that lost nothing, are left out.
        path: an ``.svg`` is drawn by hand; anything else needs matplotlib, and is an
            ``.svg`` instead where that is missing.

    Returns:
        The file written.
    """
    dots = [row for row in rows if not row.error and -math.inf < row.sqnr < _LOSSLESS]
    if path.suffix != ".svg":
        try:
            return _matplotlib(dots, path)
        except ImportError:
            path = path.with_suffix(".svg")
    path.write_text(_svg(dots))
    return path


def _matplotlib(dots: Sequence[Row], path: Path) -> Path:
    from matplotlib import pyplot  # type: ignore[import-not-found]

    figure, axes = pyplot.subplots(figsize=(9, 6))
    for name in dict.fromkeys(row.contender for row in dots):
        mine = [row for row in dots if row.contender == name]
        axes.scatter([row.wall for row in mine], [row.sqnr for row in mine], label=name, s=18)
    axes.set(xscale="log", xlabel=_AXES[0], ylabel=_AXES[1])
    axes.legend()
    figure.savefig(path, dpi=120, bbox_inches="tight")
    return path


def _svg(dots: Sequence[Row]) -> str:
    names = list(dict.fromkeys(row.contender for row in dots))
    low, high = _ends([math.log2(row.wall) for row in dots])
    floor, top = _ends([row.sqnr / 10 for row in dots])

    def place(row: Row) -> tuple[float, float]:
        right = (math.log2(row.wall) - low) / (high - low)
        up = (row.sqnr / 10 - floor) / (top - floor)
        return _LEFT + right * (_WIDTH - _LEFT - 20), _BOTTOM - up * (_BOTTOM - 20)

    across = [Row("", "", sqnr=10 * level) for level in range(floor, top + 1)]
    along = [Row("", "", wall=2.0**level) for level in range(low, high + 1)]
    parts = [
        *(
            _upright(place(Row("", "", 10 * floor, wall=row.wall)), f"{row.wall:g}x")
            for row in along
        ),
        *(_level(place(Row("", "", row.sqnr, wall=2.0**low)), f"{row.sqnr:g}") for row in across),
        *(_dot(place(row), row, _COLORS[names.index(row.contender) % 8]) for row in dots),
        *(_entry(k, name) for k, name in enumerate(names)),
        _text(_WIDTH / 2, _HEIGHT - 6, _AXES[0], "middle"),
        _text(4, 12, _AXES[1]),
    ]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    ground = '<rect width="100%" height="100%" fill="white"/>'
    opening = f'{head} font-family="sans-serif" font-size="12">{ground}'
    return "\n".join([opening, *parts, "</svg>\n"])


def _ends(values: Sequence[float]) -> tuple[int, int]:
    """Whole numbers around the values, never the same."""
    low = math.floor(min(values, default=0))
    return low, max(math.ceil(max(values, default=0)), low + 1)


def _upright(at: tuple[float, float], label: str) -> str:
    """A line of the grid, its label below."""
    ends = f'x1="{at[0]:.0f}" y1="20" x2="{at[0]:.0f}" y2="{at[1]:.0f}"'
    return f'<line {ends} stroke="#ddd"/>{_text(at[0], at[1] + 16, label, "middle")}'


def _level(at: tuple[float, float], label: str) -> str:
    """A line of the grid, its label to the left."""
    ends = f'x1="{at[0]:.0f}" y1="{at[1]:.0f}" x2="{_WIDTH - 20}" y2="{at[1]:.0f}"'
    return f'<line {ends} stroke="#ddd"/>{_text(at[0] - 6, at[1] + 4, label, "end")}'


def _dot(at: tuple[float, float], row: Row, color: str) -> str:
    title = f"<title>{row.recipe}, {row.contender}: {row.sqnr:.1f} dB, {row.wall:.1f}x</title>"
    return f'<circle cx="{at[0]:.1f}" cy="{at[1]:.1f}" r="4" fill="{color}">{title}</circle>'


def _entry(k: int, name: str) -> str:
    x, y = _WIDTH - 170, 34 + 17 * k
    return f'<circle cx="{x}" cy="{y - 4}" r="4" fill="{_COLORS[k % 8]}"/>{_text(x + 10, y, name)}'


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{text}</text>'
