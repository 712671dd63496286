"""``npuconv target coverage``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.table import Table

    from npuconv.coverage import Cell, Coverage, Obstacle

_GAP = 2  # columns between columns
_SHARE = 7  # columns of a cell: "refuses", "100.0 %"
_NARROWEST = 20  # columns of a name, however many targets there are
_STYLES = {"takes": "green", "open": "yellow", "refuses": "red"}


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--target",
    "targets",
    multiple=True,
    metavar="NAME|FILE.yaml",
    help="repeatable; without it all built-in targets",
)
@click.option("--input-shape", multiple=True, metavar="NAME=1,3,224,224", help="fixes dimensions")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@click.option("-q", "--quiet", is_flag=True, help="no progress bar")
@click.option("--no-color", is_flag=True, help="no colours; NO_COLOR does the same")
def coverage(
    models: tuple[str, ...],
    targets: tuple[str, ...],
    input_shape: tuple[str, ...],
    form: str,
    quiet: bool,
    no_color: bool,
) -> int:
    """Show which targets take which models, and what stops each.

    MODEL is a file, or a directory that is searched for .onnx files. A target takes a
    model, refuses it, or it is open: that depends on limits which nobody has written
    down. The share is that of the multiply-accumulates that the device does, after
    rewriting. Rewrites are not measured here; `npuconv check` does that.

    Exit code 0 whatever the verdicts; 2: a file that cannot be read; the others are
    shown all the same.
    """
    from npuconv.cli import screen
    from npuconv.cli.check import expand
    from npuconv.cli.options import parse_shapes
    from npuconv.coverage import cover

    shapes = parse_shapes(input_shape)
    with screen.progress(quiet) as progress:
        found = cover(expand(models), targets, progress, input_shape=shapes)
    for error in found.unreadable.values():
        click.echo(f"npuconv: error: {error}", err=True)
    if form == "json":
        click.echo(found.as_json(), nl=False)
    elif found.cells:
        _print(found, screen.wants_color(no_color))
    return 2 if found.unreadable else 0


def _print(found: Coverage, color: bool) -> None:
    from rich.console import Console

    from npuconv.cli.tables import put
    from npuconv.report.terminal import hang

    system: Any = "auto" if color else None
    console = Console(color_system=system, highlight=False, markup=False)
    put(console, _table(found, console.width))
    lines = ["", *hang(_legend(found), console.width)]
    for cell in found.refusals:
        lines += ["", *hang(_visible(f"{cell.model} on {cell.target}"), console.width)]
        for obstacle in cell.obstacles:
            lines.append(f"  {obstacle.code} {obstacle.name} x {obstacle.count}")
            for text in (_reason(obstacle), obstacle.source):
                lines += hang(_visible(text), console.width, first="      ", rest="        ")
    click.echo("\n".join(lines))


def _table(found: Coverage, width: int) -> Table:
    from rich.table import Table
    from rich.text import Text

    from npuconv.cli.tables import fold_path
    from npuconv.coverage import short_names

    heads = [_visible(Path(name).name) for name in found.targets]
    others = sum(max(len(head), _SHARE) + _GAP for head in heads)
    room = max(width - others, _NARROWEST)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0))
    table.add_column("model", overflow="fold")
    for head in heads:
        table.add_column(Text(head), overflow="fold")
    for model, name in zip(found.models, short_names(found.models), strict=True):
        cells = [Text(_shown(cell), _STYLES[cell.verdict]) for cell in found.of(model)]
        table.add_row(Text(fold_path(_visible(name), room)), *cells)
    return table


def _shown(cell: Cell) -> str:
    count = f" {len(cell.unknown_limits)}" if cell.verdict == "open" else ""
    return f"{cell.verdict}{count}\n{cell.device_share}"


def _legend(found: Coverage) -> str:
    text = "The share is that of the MACs that the device does."
    if any(cell.verdict == "open" for cell in found.cells):
        text += " open: it depends on so many limits that are not known."
    return text


def _reason(obstacle: Obstacle) -> str:
    """One node and what is wrong with it; a finding about the whole model names none."""
    operator = f" ({obstacle.op_type})" if obstacle.op_type else ""
    return f"{obstacle.node}{operator}: {obstacle.message}" if obstacle.node else obstacle.message


def _visible(text: str) -> str:
    from npuconv.report.escape import visible

    return visible(text)
