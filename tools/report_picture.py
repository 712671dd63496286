r"""Draw the graph and the layer chart of a report as an SVG file.

    npuconv convert samples/digits/model.onnx -q \
        --calibration samples/digits/calibration.npz -o build/digits.npu.onnx
    python tools/report_picture.py build/digits.npu.report.json docs/site/report.svg

The colours follow the reader's, light or dark. The same report gives the same bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from xml.sax.saxutils import escape

from npuconv.report import words
from npuconv.report.escape import visible
from npuconv.report.html import profile
from npuconv.report.html_graph import Picture, picture
from npuconv.schemas.report import Report

_CHART, _ROW, _TOP = 560, 34, 66  # pixels: width of the chart, a layer's row, the title's height
_FULL_DB = 60.0  # SQNR of a whole bar
_STYLE = """
text { font: 13px system-ui, "Segoe UI", "Liberation Sans", sans-serif; fill: #1b2330; }
.title { font-size: 16px; font-weight: 600; } .small, .t2 { fill: #5d6878; font-size: 12px; }
.box rect { fill: #eceff3; stroke: #98a2b0; } .box.device rect { fill: #dbeafb; stroke: #2a78c8; }
.box.host rect { fill: #fbeacb; stroke: #d99a2b; }
.box.end rect { fill: #fff; stroke-dasharray: 4 3; }
.box .t1 { font-weight: 600; font-size: 12px; }
.lines path { fill: none; stroke: #a9b3c0; stroke-width: 1.6; }
.track { fill: #edf0f4; } .sqnr { fill: #2a78c8; } .noise { fill: #d9534a; } .page { fill: #fff; }
@media (prefers-color-scheme: dark) {
text { fill: #e5e9ef; } .small, .t2 { fill: #9aa6b5; } .page { fill: #1a2028; }
.box rect { fill: #2c343f; stroke: #6b7685; } .box.device rect { fill: #1d3a5a; stroke: #4c97e4; }
.box.host rect { fill: #4d3a14; } .box.end rect { fill: #1a2028; } .lines path { stroke: #566273; }
.track { fill: #252e39; } .sqnr { fill: #4c97e4; } .noise { fill: #ff7b70; }
}"""


def draw(report: Report) -> str:
    """Draw the graph, and beside it the SQNR and the share of the noise of every layer.

    Raises:
        ValueError: the report has no graph.
    """
    graph = picture(report)
    if graph is None:
        raise ValueError("the report has no graph")
    layers = profile(report)
    width = graph.drawing.width + _CHART + 60
    height = _TOP + max(graph.drawing.height, _ROW * len(layers)) + 20
    place = f"{words.device_share(report)} of the MACs on the device, in blue"
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" '
        f'aria-label="Graph and layers of {escape(visible(report.model.path))}">',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}" rx="10"/>',
        '<text class="title" x="20" y="30">The graph as it was rewritten</text>',
        f'<text class="small" x="20" y="50">{escape(place)}</text>',
        f'<g transform="translate(10 {_TOP})">',
        *_graph(graph),
        "</g>",
        f'<g transform="translate({graph.drawing.width + 40} 0)">',
        *_chart(report),
        "</g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _graph(graph: Picture) -> Iterator[str]:
    yield '<g class="lines">'
    for path in graph.drawing.paths.values():
        yield f'<path d="{path}"/>'
    yield "</g>"
    for card in graph.cards:
        yield (
            f'<g class="box {card.box.placement}" transform="translate({card.x} {card.y})">'
            f'<rect width="{graph.box[0]}" height="{graph.box[1]}" rx="6"/>'
            f'<text class="t1" x="10" y="18">{escape(card.title)}</text>'
            f'<text class="t2" x="10" y="34">{escape(card.name)}</text></g>'
        )


def _chart(report: Report) -> Iterator[str]:
    sqnr = words.scores(report.accuracy) if report.accuracy else "not measured"
    yield '<text class="title" x="0" y="30">Accuracy, layer by layer</text>'
    yield f'<text class="small" x="0" y="50">{escape(sqnr.partition(", cosine")[0])}</text>'
    for number, bar in enumerate(profile(report)):
        y = _TOP + _ROW * number + 12
        layer = bar.layer
        long = 190 * min(max((layer.sqnr_db or 0.0) / _FULL_DB, 0.01), 1.0)
        noise = 100 * (layer.noise_share or 0.0)
        yield f'<text x="0" y="{y + 10}">{escape(visible(layer.name))}</text>'
        yield f'<rect class="track" x="150" y="{y}" width="190" height="12" rx="4"/>'
        yield f'<rect class="sqnr" x="150" y="{y}" width="{long:.1f}" height="12" rx="4"/>'
        text = words.sqnr(layer.sqnr_db, layer.cosine)
        yield f'<text class="small" x="350" y="{y + 10}">{text}</text>'
        yield f'<rect class="noise" x="410" y="{y}" width="{noise:.1f}" height="12" rx="4"/>'
        share = f"{words.percent(layer.noise_share)} of the noise"
        yield f'<text class="small" x="{418 + noise:.1f}" y="{y + 10}">{share}</text>'


def main(arguments: list[str]) -> int:
    """Read a report, write the picture."""
    if len(arguments) != 2:
        print("usage: report_picture.py REPORT.json OUT.svg", file=sys.stderr)
        return 2
    report = Report.model_validate_json(Path(arguments[0]).read_text("utf-8"))
    Path(arguments[1]).write_text(draw(report), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
