"""``npuconv inspect``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from npuconv.cli.guard import guarded, limited

if TYPE_CHECKING:
    from rich.console import Console


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL")
@click.option("--diff", is_flag=True, help="compare two models: --diff BEFORE AFTER")
@click.option("--input-shape", multiple=True, metavar="NAME=1,3,224,224", help="fixes dimensions")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text")
@click.option("-v", "--verbose", is_flag=True, help="every node with its shape and its costs")
@click.option("--no-color", is_flag=True, help="no colours; NO_COLOR does the same")
@limited
@guarded
def inspect(
    models: tuple[str, ...],
    diff: bool,
    input_shape: tuple[str, ...],
    form: str,
    verbose: bool,
    no_color: bool,
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
    from npuconv.cli import screen
    from npuconv.cli.inspection_text import show
    from npuconv.inspection import inspect as look

    found = look(models[0], given)
    if form == "json":
        click.echo(found.as_json(), nl=False)
    else:
        color = screen.wants_color(no_color)
        click.echo(show(found, color=color, verbose=verbose, width=screen.width()), nl=False)
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
    from npuconv.inspection import compare

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
