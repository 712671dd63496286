"""``npuconv inspect``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from npuconv.inspection import Inspection


@click.command()
@click.argument("model")
@click.option("--input-shape", multiple=True, metavar="NAME=1,3,224,224", help="fixes dimensions")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@click.option("--no-color", is_flag=True, help="no colours; NO_COLOR does the same")
def inspect(model: str, input_shape: tuple[str, ...], form: str, no_color: bool) -> int:
    """Show what is in a model: operators, convolutions, shapes, costs."""
    from npuconv.cli.options import parse_shapes
    from npuconv.inspection import inspect as look

    found = look(model, parse_shapes(input_shape))
    if form == "json":
        click.echo(found.as_json(), nl=False)
    else:
        _print(found, no_color)
    return 0


def _print(found: Inspection, no_color: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from npuconv.cli import screen
    from npuconv.report.escape import visible

    color: Any = "auto" if screen.wants_color(no_color) else None
    console = Console(color_system=color, highlight=False, markup=False)
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
        "operators": ", ".join(f"{op} {n}" for op, n in found.operators.items()),
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
