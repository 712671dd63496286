"""``npuconv inspect``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

    from npuconv.inspection import Inspection


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL")
@click.option("--diff", is_flag=True, help="compare two models: --diff BEFORE AFTER")
@click.option("--input-shape", multiple=True, metavar="NAME=1,3,224,224", help="fixes dimensions")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@click.option("--no-color", is_flag=True, help="no colours; NO_COLOR does the same")
def inspect(
    models: tuple[str, ...], diff: bool, input_shape: tuple[str, ...], form: str, no_color: bool
) -> int:
    """Show what is in a model: operators, convolutions, shapes, costs.

    With --diff, two models side by side: a float model and what it was converted to, or
    two versions of one model. Convolutions are matched by name.
    """
    from npuconv.cli.options import parse_shapes

    _check_number(models, diff)
    given = parse_shapes(input_shape)
    if diff:
        _diff(models, given, form, no_color)
        return 0
    from npuconv.inspection import inspect as look

    found = look(models[0], given)
    if form == "json":
        click.echo(found.as_json(), nl=False)
    else:
        _print(found, _console(no_color))
    return 0


def _check_number(models: tuple[str, ...], diff: bool) -> None:
    from npuconv.errors import UsageError

    if diff and len(models) != 2:
        raise UsageError("--diff takes two models", hint="npuconv inspect --diff BEFORE AFTER")
    if not diff and len(models) != 1:
        raise UsageError("inspect takes one model", hint="--diff BEFORE AFTER compares two")


def _diff(
    models: tuple[str, ...], given: dict[str, tuple[int, ...]], form: str, no_color: bool
) -> None:
    from npuconv.cli.side_by_side import show
    from npuconv.comparison import compare

    before, after = models
    found = compare(before, after, given)
    if form == "json":
        click.echo(found.as_json(), nl=False)
    else:
        show(found, _console(no_color))


def _console(no_color: bool) -> Console:
    from rich.console import Console

    from npuconv.cli import screen

    color: Any = "auto" if screen.wants_color(no_color) else None
    return Console(color_system=color, highlight=False, markup=False)


def _print(found: Inspection, console: Console) -> None:
    from rich.table import Table

    from npuconv.report.escape import visible

    producer = visible(found.producer) or "no producer"
    macs = "unknown (dynamic shape)" if found.macs is None else f"{found.macs:,}"
    lines = {
        "model": f"{visible(found.path)}  (sha256 {found.sha256[:12]})",
        "opset": f"{found.opset}, IR {found.ir_version}, {producer}",
        "inputs": "; ".join(visible(t) for t in found.inputs),
        "outputs": "; ".join(visible(t) for t in found.outputs),
        "nodes": f"{found.nodes} ({found.in_subgraphs} in subgraphs)",
        "parameters": f"{found.parameters:,}",
        "MACs": macs,
        "operators": ", ".join(f"{visible(op)} {n}" for op, n in found.operators.items()),
    }
    grid = Table.grid(padding=(0, 2))
    for key, text in lines.items():
        grid.add_row(key, text)
    console.print(grid)
    if found.convolutions:
        console.print(_table(found), soft_wrap=False)


def _table(found: Inspection) -> object:
    from rich.table import Table
    from rich.text import Text

    from npuconv.report.escape import visible

    table = Table(box=None, pad_edge=False, title="\nconvolutions", title_justify="left")
    for column in ("name", "mode", "input", "kernel", "s", "d", "pads", "MACs"):
        table.add_column(column, overflow="fold", no_wrap=column in ("mode", "kernel"))
    for c in found.convolutions:
        macs = "?" if c.macs is None else f"{c.macs:,}"
        cells = (visible(c.name), c.mode, c.input, c.kernel, c.strides, c.dilations, c.pads, macs)
        table.add_row(*(Text(cell) for cell in cells))
    return table
