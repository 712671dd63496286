"""``npuconv target``: list, show, lint and compare targets, and cover models with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from npuconv.cli import screen
from npuconv.cli.help import printed_option
from npuconv.cli.options import parse_shapes
from npuconv.errors import TargetError
from npuconv.report.sections import Item, Section, Table
from npuconv.report.words import count, quantity, size
from npuconv.target import Target, value_text, view

if TYPE_CHECKING:
    from npuconv.cli.coverage import Cell, Coverage, Obstacle
    from npuconv.cli.explore import Curve, Exploration, Point

_SUMMARY_HEAD = ("limit", "needed", "knee", "cost", "tightest", "cost", "refused")
_SUMMARY_LEGEND = (
    "knee: the tightest value that adds at most a tenth of the cost and refuses no model. "
    "refused: models that the tightest value refuses. -v shows every value, "
    "--report FILE.html draws them."
)
_STYLES = {"takes": "green", "open": "yellow", "refuses": "red"}


# Its own, and not only those of the command above it: click keeps what it first sees.
@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def target() -> None:
    """List, show, compare and check descriptions of devices."""


@target.command("list")
def list_command() -> None:
    """List the built-in targets."""
    for line in view.summaries():
        click.echo(line)


@target.command()
@click.argument("name", metavar="NAME|FILE.yaml")
@printed_option("text", "json", "yaml", text="yaml is the file itself, to start your own from")
def show(name: str, form: str) -> None:
    """Show every limit of a target, with its source.

    A line for each; only a terminal breaks those which are longer than it is wide.
    """
    found = Target.load(name)
    if form == "yaml":
        click.echo(found.yaml, nl=False)
    elif form == "json":
        click.echo(view.as_json(found), nl=False)
    else:
        text, width = view.as_text(found), screen.terminal()
        if width is not None:
            text = "".join(f"{screen.broken(row, width)}\n" for row in text.splitlines())
        click.echo(text, nl=False)


@target.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
def lint(files: tuple[str, ...]) -> None:
    """Check target files; print every problem, one per line."""
    total = 0
    for file in files:
        lines = view.lint_lines(file)
        total += len(lines)
        for line in lines or [f"{file}: ok"]:
            click.echo(line)
    if total:
        raise TargetError(f"{total} problem{'s' if total > 1 else ''} found")


@target.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
def diff(old: str, new: str) -> None:
    """Show what differs between two targets, by operator.

    A limit that only one of them has stands against a dash: there it is no limit.
    """
    lines = view.differences(Target.load(old), Target.load(new))
    for line in lines or ["no differences"]:
        click.echo(line)


@target.command()
def schema() -> None:
    """Print the JSON schema of target files."""
    click.echo(view.schema_json(), nl=False)


@target.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="NAME|FILE.yaml",
    help="repeatable; without it all built-in targets",
)
@click.option("--input-shape", multiple=True, metavar="NAME=1,3,224,224", help="fixes dimensions")
@printed_option("text", "json")
@click.option("-v", "--verbose", is_flag=True, help="also what stops each model that is refused")
@click.option("-q", "--quiet", is_flag=True, help="no progress bar")
@click.option("--no-color", is_flag=True, help="no colours; NO_COLOR does the same")
def coverage(
    models: tuple[str, ...],
    targets: tuple[str, ...],
    input_shape: tuple[str, ...],
    form: str,
    verbose: bool,
    quiet: bool,
    no_color: bool,
) -> int:
    """Show which targets take which models, and what stops each.

    MODEL is a file, or a directory that is searched for .onnx files. A target takes a
    model, refuses it, or the answer is open, because it depends on undocumented limits.
    Below it: the share of the multiply-accumulates that the device does after rewriting,
    and the tensors and KiB that cross between device and host in one inference.
    `npuconv check` also measures the rewrites.

    Exit code 0 whatever the verdicts; 2: a file cannot be read; the others are shown.
    """
    from npuconv.cli.check import expand
    from npuconv.cli.coverage import cover

    shapes = parse_shapes(input_shape)
    with screen.progress(quiet) as progress:
        found = cover(expand(models), targets, progress, input_shape=shapes)
    for error in found.unreadable.values():
        screen.fail(str(error))
    if form == "json":
        click.echo(found.as_json(), nl=False)
    elif found.cells:
        screen.show(_coverage_sections(found, verbose=verbose), no_color=no_color)
    return 2 if found.unreadable else 0


def _coverage_sections(found: Coverage, *, verbose: bool) -> list[Section]:
    """Return the table of models and targets, its legend, and the obstacles when verbose."""
    from npuconv.cli.coverage import short_names

    rows: list[tuple[str, ...]] = []
    for model, name in zip(found.models, short_names(found.models), strict=True):
        cells = found.of(model)
        rows.append((name, *map(_verdict, cells)))
        rows += [(f"  {label}", *texts) for label, texts in _figures(cells)]
    head = ("model", *(Path(name).name for name in found.targets))
    sections = [Section("", [Table(head, rows, styles=_STYLES)]), Section("", [_legend(found)])]
    if found.refusals and not verbose:
        sections.append(Section("", ["-v says what stops the models that are refused."]))
    for cell in found.refusals if verbose else ():
        obstacles = [
            Item(
                [f"{obstacle.code} {obstacle.name} x {obstacle.count}"],
                [_reason(obstacle), obstacle.source],
            )
            for obstacle in cell.obstacles
        ]
        sections.append(Section(f"{cell.model} on {cell.target}", obstacles))
    return sections


def _verdict(cell: Cell) -> str:
    return f"open {len(cell.unknown_limits)}" if cell.verdict == "open" else cell.verdict


def _figures(cells: Sequence[Cell]) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows below the verdicts on a model: label, and a text for each target."""
    yield "MACs on device", [cell.device_share for cell in cells]
    yield "crossings", [str(cell.crossings) for cell in cells]
    moved = (cell.crossing_bytes for cell in cells)
    yield "KiB that cross", ["unknown" if one is None else f"{one / 1024:,.1f}" for one in moved]
    if any(cell.fitted for cell in cells):
        yield "layers fitted", [str(cell.fitted) if cell.fitted else "" for cell in cells]
        yield "MACs added", [cell.extra_share if cell.fitted else "" for cell in cells]


def _legend(found: Coverage) -> str:
    text = "crossings: tensors that go between device and host in one inference."
    if any(cell.verdict == "open" for cell in found.cells):
        text += " open: the answer depends on so many undocumented limits."
    if any(cell.fitted for cell in found.cells):
        text += " fitted: convolutions that are rewritten to keep a limit."
    return text


def _reason(obstacle: Obstacle) -> str:
    """One node and what is wrong with it; a finding about the whole model names none."""
    operator = f" ({obstacle.op_type})" if obstacle.op_type else ""
    return f"{obstacle.node}{operator}: {obstacle.message}" if obstacle.node else obstacle.message


@target.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option("--target", default="npu-int8", show_default=True, metavar="NAME|FILE.yaml")
@click.option(
    "--assume", multiple=True, metavar="LIMIT=VALUE", help="answer another limit meanwhile"
)
@click.option("--input-shape", multiple=True, metavar="NAME=1,3,224,224", help="fixes dimensions")
@click.option("--output-format", type=click.Choice(["text", "json"]), default="text")
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

    Each limit of Conv that the target marks '?' is tightened alone, from what the models
    need down to 1, and the rewrites that keep it are planned. The table has the value that
    the models need, the knee (the tightest value that adds at most a tenth of the cost), and
    the tightest value; with -v every value, with the added multiply-accumulates, bytes and
    convolutions.

    Exit code 0; 2: a file cannot be read, or the target refuses a model already; the others
    are shown.
    """
    from npuconv import files
    from npuconv.cli.check import expand
    from npuconv.cli.explore import explore as run

    writers = [(path, _writer(path)) for path in reports]
    shapes = parse_shapes(input_shape)
    with screen.progress(quiet) as progress:
        found = run(expand(models), target, progress, assume=assume, input_shape=shapes)
    for path, reason in found.left_out.items():
        screen.fail(reason if reason.startswith(path) else f"{path}: left out: {reason}")
    for path, writer in writers:
        files.write(path, writer(found))
    if output_format == "json":
        click.echo(found.as_json(), nl=False)
    elif found.models:
        screen.show(_curve_sections(found, verbose=verbose), no_color=no_color)
    return 2 if found.left_out else 0


def _writer(path: str) -> Callable[[Exploration], str]:
    """Return the renderer for a file, by its suffix.

    Raises:
        UsageError: no renderer has it.
    """
    from npuconv.cli import explore_page as page
    from npuconv.errors import UsageError

    if path.endswith(".html"):
        return page.render
    if path.endswith(".json"):
        return lambda found: found.as_json()
    raise UsageError(f"--report {path}: unknown suffix", hint="give .html or .json")


def _curve_sections(found: Exploration, *, verbose: bool) -> list[Section]:
    """Return a row for each limit; a table for each when verbose."""
    models = count(len(found.models), "model")
    total = f"{models}, {count(found.convolutions, 'convolution')}, {quantity(found.macs)} MACs"
    if not verbose:
        table = Table(_SUMMARY_HEAD, list(map(_summary, found.curves)), range(1, 7))
        return [Section(total, [table]), Section("", [_SUMMARY_LEGEND])]
    head = ("value", "cost", "MACs", "moved", "convolutions", "rewritten", "refused", "")
    return [
        Section(total),
        *(
            Section(
                f"{curve.limit}: the models need {curve.needs}",
                [Table(head, [_row(curve, point) for point in curve.points], range(7), ())],
            )
            for curve in found.curves
        ),
    ]


def _summary(curve: Curve) -> tuple[str, ...]:
    """Return the row of a limit: what is needed, the knee, and the tightest value."""
    last = curve.points[-1]
    knee = next((point for point in curve.points if point.value == curve.knee), None)
    at_knee = ("none", "") if knee is None else (value_text(knee.value), _percent(knee.cost))
    tightest = (value_text(last.value), _percent(last.cost), str(last.refused))
    return (curve.limit, value_text(curve.needed[-1]), *at_knee, *tightest)


def _row(curve: Curve, point: Point) -> tuple[str, ...]:
    return (
        value_text(point.value),
        _percent(point.cost),
        _percent(point.share),
        size(point.moved_bytes),
        f"{point.convolutions:+d}",
        str(point.rewritten),
        str(point.refused),
        "knee" if point.value == curve.knee else "",
    )


def _percent(share: float) -> str:
    return f"{100 * share:+.1f} %"
