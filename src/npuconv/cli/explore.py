"""``npuconv target explore``: text and page of the cost of undocumented limits."""

from __future__ import annotations

from html import escape
from pathlib import Path

import click

from npuconv import files
from npuconv.cli import screen
from npuconv.cli.exploration import Curve, Exploration
from npuconv.cli.exploration import explore as explore_limits
from npuconv.cli.help import output_format_option
from npuconv.cli.models import expand
from npuconv.cli.options import parse_shapes
from npuconv.errors import UsageError
from npuconv.report.sections import Section, Table
from npuconv.report.words import count, quantity, size
from npuconv.target import value_text


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option("--target", default="npu-int8", show_default=True, metavar="NAME|FILE.yaml")
@click.option(
    "--assume", multiple=True, metavar="LIMIT=VALUE", help="answer another limit meanwhile"
)
@click.option("--input-shape", multiple=True, metavar="NAME=1,3,224,224", help="fixes dimensions")
@output_format_option(("text", "json"))
@click.option(
    "--report", "reports", multiple=True, metavar="FILE", help="write .html or .json; repeatable"
)
@click.option("-v", "--verbose", is_flag=True, help="every value of every limit")
@click.option("-q", "--quiet", is_flag=True, help="no progress bar")
@click.option("--no-color", is_flag=True, help="no colours; NO_COLOR does the same")
def explore(
    models: tuple[str, ...],
    target: str,
    assume: tuple[str, ...],
    input_shape: tuple[str, ...],
    output_format: str,
    reports: tuple[str, ...],
    verbose: bool,
    quiet: bool,
    no_color: bool,
) -> int:
    """Show what each undocumented limit would cost these models.

    Each limit of Conv that the target marks '?' is tightened alone, from the value that the
    models need down to 1, and the rewrites that keep it are planned. The table has the
    value that the models need, the knee (the tightest value that adds at most a tenth of
    the cost), and the tightest value; with -v every value, with the added
    multiply-accumulates, bytes and convolutions.

    Exit code 0; 2: a file cannot be read, or the target refuses a model already; the others
    are shown.
    """
    for path in reports:
        if not path.endswith((".html", ".json")):
            raise UsageError(f"--report {path}: unknown suffix", hint="give .html or .json")
    shapes = parse_shapes(input_shape)
    with screen.progress(quiet) as progress:
        result = explore_limits(expand(models), target, progress, assume=assume, input_shape=shapes)
    for path, reason in result.left_out.items():
        screen.fail(reason if reason.startswith(path) else f"{path}: left out: {reason}")
    for path in reports:
        is_page = path.endswith(".html")
        files.write(path, render_page(result) if is_page else result.as_json())
    if output_format == "json":
        click.echo(result.as_json(), nl=False)
    elif result.models:
        screen.show(_sections(result, verbose=verbose), no_color=no_color)
    return 2 if result.left_out else 0


_SUMMARY_LEGEND = (
    "knee: the tightest value that adds at most a tenth of the cost and refuses no model. "
    "refused: models that the tightest value refuses. -v shows every value, "
    "--report FILE.html draws them."
)


def _sections(result: Exploration, *, verbose: bool) -> list[Section]:
    """Return a row for each limit; a table for each when verbose."""
    if not verbose:
        head: tuple[str, ...] = ("limit", "needed", "knee", "cost", "tightest", "cost", "refused")
        table = Table(head, list(map(_summary, result.curves)), range(1, len(head)))
        return [Section(_totals(result), [table]), Section("", [_SUMMARY_LEGEND])]
    sections = [Section(_totals(result))]
    head = ("value", "cost", "MACs", "moved", "convolutions", "rewritten", "refused", "")
    for curve in result.curves:
        rows = [
            (
                value_text(point.value), _percent(point.cost), _percent(point.share),
                size(point.moved_bytes), f"{point.convolutions:+d}", str(point.rewritten),
                str(point.refused), "knee" if point.value == curve.knee else "",
            )
            for point in curve.points
        ]  # fmt: skip
        title = f"{curve.limit}: the models need {curve.needs}"
        sections.append(Section(title, [Table(head, rows, range(len(head) - 1))]))
    return sections


def _totals(result: Exploration) -> str:
    models, layers = count(len(result.models), "model"), count(result.convolutions, "convolution")
    return f"{models}, {layers}, {quantity(result.macs)} MACs"


def _summary(curve: Curve) -> tuple[str, ...]:
    """Return the row of a limit: the needed value, the knee, and the tightest value."""
    last = curve.points[-1]
    knee = next((point for point in curve.points if point.value == curve.knee), None)
    at_knee = ("none", "") if knee is None else (value_text(knee.value), _percent(knee.cost))
    tightest = (value_text(last.value), _percent(last.cost), str(last.refused))
    return (curve.limit, value_text(curve.needed[-1]), *at_knee, *tightest)


def _percent(share: float) -> str:
    return f"{100 * share:+.1f} %"


# The HTML page: a plot of each limit

_WIDTH, _HEIGHT = 280, 120  # of a plot, in pixels
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 10, 10, 26  # margins of its axes
_MIN_RANGE = 0.1  # smallest range of the axis of costs, or noise would look like growth

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


def render_page(result: Exploration) -> str:
    """Return the curves as an HTML page of small plots, which needs no network."""
    plots = "\n".join(map(_plot, result.curves))
    reasons = "".join(
        f"<li>{escape(Path(path).as_posix())}: {escape(reason)}</li>"
        for path, reason in result.left_out.items()
    )
    left_out = f"<h2>Left out</h2><ul>{reasons}</ul>" if reasons else ""
    title = f"Undocumented limits of {escape(result.target)}"
    return (
        '<!doctype html>\n<html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title}</title><style>{_STYLE}</style>\n<main>\n<h1>{title}</h1>\n"
        f"<p>{_totals(result)}. Each plot: the added cost of all models as one limit "
        "tightens, the others left open. Orange: the knee, the tightest value that is still "
        f'cheap. Red: models are refused.</p>\n<div class="plots">\n{plots}\n</div>'
        f"\n{left_out}\n</main></html>\n"
    )


def _plot(curve: Curve) -> str:
    """Return the plot of the cost over the values, from loose to tight."""
    top = max(_MIN_RANGE, *(point.cost for point in curve.points))
    width, bottom = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _BOTTOM
    line, marks = [], []
    for i, point in enumerate(curve.points):
        x = _LEFT + width * (i + 0.5) / len(curve.points)
        y = _TOP + (bottom - _TOP) * (1 - point.cost / top)
        value = value_text(point.value)
        kind = "refused" if point.refused else "knee" if point.value == curve.knee else "dot"
        text = (
            f"{curve.fact} {value}: cost {_percent(point.cost)}, MACs {_percent(point.share)}, "
            f"{point.convolutions:+d} convolutions, {point.moved_bytes} bytes moved, "
            f"{point.rewritten} models rewritten, {point.refused} refused"
        )
        line.append(f"{x:.1f},{y:.1f}")
        marks.append(
            f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{5 if kind == "knee" else 3}">'
            f"<title>{escape(text)}</title></circle>"
            f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{value}</text>'
        )
    knee = "no value is cheap" if curve.knee is None else f"knee at {value_text(curve.knee)}"
    return (
        f"<section><h2>{escape(curve.limit)}</h2><p>needed: {curve.needs}; {knee}</p>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(curve.limit)}">'
        f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{_WIDTH - _RIGHT}"/>'
        f'<text x="{_LEFT - 4}" y="{_TOP + 6}" text-anchor="end">{100 * top:+.0f} %</text>'
        f'<text x="{_LEFT - 4}" y="{bottom}" text-anchor="end">0 %</text>'
        f'<polyline class="line" points="{" ".join(line)}"/>{"".join(marks)}</svg></section>'
    )
