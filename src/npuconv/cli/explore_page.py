"""Curves of an exploration as one HTML page of small plots, one a limit."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from npuconv.cli.explore import Curve, Exploration, Point
from npuconv.report.words import count, quantity
from npuconv.target import value_text

_WIDTH, _HEIGHT = 280, 120  # of a plot, in pixels
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 10, 10, 26  # margins of its axes
_SMALLEST = 0.1  # share of cost that fills the axis at least, or noise would look like growth

_STYLE = """
:root{color-scheme:light dark;--line:#2563eb;--knee:#d97706;--bad:#dc2626;--faint:#8888}
body{font:14px/1.4 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;
  overflow-wrap:anywhere}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(270px,1fr));gap:1.5rem}
h2{font-size:1rem;margin:0}p{margin:.2rem 0}h1+p{margin-bottom:1.5rem}small{color:var(--faint)}
svg{width:100%;height:auto}text{font:9px system-ui,sans-serif;fill:currentColor}
.plots+h2{margin-top:1.5rem}
.axis{stroke:var(--faint);fill:none}.line{stroke:var(--line);fill:none;stroke-width:2}
.dot{fill:var(--line)}.knee{fill:var(--knee)}.refused{fill:var(--bad)}
"""


def render(found: Exploration) -> str:
    """Render the page; it needs no network."""
    plots = "\n".join(_section(curve) for curve in found.curves)
    left = "".join(
        f"<li>{escape(Path(path).as_posix())}: {escape(reason)}</li>"
        for path, reason in found.left_out.items()
    )
    out = f"<h2>Left out</h2><ul>{left}</ul>" if left else ""
    return (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>Undocumented limits of {escape(found.target)}</title><style>{_STYLE}</style>\n"
        f"<main>\n<h1>Undocumented limits of {escape(found.target)}</h1>\n"
        f"<p>{count(len(found.models), 'model')}, {count(found.convolutions, 'convolution')}, "
        f"{quantity(found.macs)} MACs. Each plot: the added cost of all models as one limit "
        "tightens, the others left open. Orange: the knee, the tightest value that is still "
        f'cheap. Red: models are refused.</p>\n<div class="plots">\n{plots}\n</div>'
        f"\n{out}\n</main></html>\n"
    )


def _section(curve: Curve) -> str:
    knee = "no value is cheap" if curve.knee is None else f"knee at {value_text(curve.knee)}"
    return (
        f"<section><h2>{escape(curve.limit)}</h2>"
        f"<p>needed: {curve.needs}; {knee}</p>{_plot(curve)}</section>"
    )


def _plot(curve: Curve) -> str:
    """The cost over the values, from loose to tight."""
    top = max(_SMALLEST, *(point.cost for point in curve.points))
    places = [_place(i, len(curve.points), p.cost / top) for i, p in enumerate(curve.points)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(
        _dot(x, y, point, curve) for (x, y), point in zip(places, curve.points, strict=True)
    )
    bottom = _HEIGHT - _BOTTOM
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(curve.limit)}">'
        f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{_WIDTH - _RIGHT}"/>'
        f'<text x="{_LEFT - 4}" y="{_TOP + 6}" text-anchor="end">{100 * top:+.0f} %</text>'
        f'<text x="{_LEFT - 4}" y="{bottom}" text-anchor="end">0 %</text>'
        f'<polyline class="line" points="{line}"/>{dots}{_ticks(places, curve.points)}</svg>'
    )


def _place(index: int, count: int, height: float) -> tuple[float, float]:
    width, tall = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    return _LEFT + width * (index + 0.5) / count, _TOP + tall * (1 - height)


def _dot(x: float, y: float, point: Point, curve: Curve) -> str:
    kind = "refused" if point.refused else "knee" if point.value == curve.knee else "dot"
    text = (
        f"{curve.fact} {value_text(point.value)}: cost {100 * point.cost:+.1f} %, "
        f"MACs {100 * point.share:+.1f} %, "
        f"{point.convolutions:+d} convolutions, {point.moved_bytes} bytes moved, "
        f"{point.rewritten} models rewritten, {point.refused} refused"
    )
    radius = 5 if kind == "knee" else 3
    return (
        f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">'
        f"<title>{escape(text)}</title></circle>"
    )


def _ticks(places: Sequence[tuple[float, float]], points: Sequence[Point]) -> str:
    y = _HEIGHT - _BOTTOM + 14
    return "".join(
        f'<text x="{x:.1f}" y="{y}" text-anchor="middle">{value_text(point.value)}</text>'
        for (x, _), point in zip(places, points, strict=True)
    )
