"""``npuconv check``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from npuconv.cli import screen
from npuconv.cli.options import collect, output_options, shared_options

if TYPE_CHECKING:
    from npuconv.report.schema import Report

FORMATS = ("text", "json", "sarif", "junit", "github", "markdown")


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--output-format", type=click.Choice(FORMATS), default="text", help="what stdout gets"
)
@shared_options
@output_options
def check(
    models: tuple[str, ...],
    output_format: str,
    config: str | None,
    reports: tuple[str, ...],
    timings: bool,
    quiet: bool,
    verbose: bool,
    no_color: bool,
    **flags: Any,
) -> int:
    """Say whether models can be converted, and why not; writes no model.

    MODEL is a file, or a directory that is searched for .onnx files. The findings are
    those convert has. Exit code 0: nothing at or above --fail-on; 1: findings; 2: a file
    that cannot be read; the others are checked all the same.
    """
    from npuconv.errors import ModelError
    from npuconv.pipeline.entry import check_with
    from npuconv.report import format_of

    options = collect(config, flags)
    for path in reports:
        format_of(path)
    found: list[Report] = []
    unreadable = 0
    for path in expand(models):
        try:
            found.append(check_with(path, options, timings=timings))
        except ModelError as error:
            unreadable += 1
            click.echo(f"npuconv: error: {error}", err=True)
    _show(found, output_format, reports, quiet, verbose, no_color)
    worst = max((report.summary.exit_code for report in found), default=0)
    return 2 if unreadable else worst


def expand(models: tuple[str, ...]) -> list[str]:
    """Files as given, directories as the models in them, each once.

    Raises:
        UsageError: a directory without models.
    """
    from npuconv.errors import UsageError

    found: dict[str, None] = {}
    for model in models:
        path = Path(model)
        inside = sorted(p.as_posix() for p in path.rglob("*.onnx")) if path.is_dir() else [model]
        if not inside:
            raise UsageError(f"{model}: no .onnx file in this directory")
        found.update(dict.fromkeys(inside))
    return list(found)


def _show(
    found: list[Report],
    output_format: str,
    written: tuple[str, ...],
    quiet: bool,
    verbose: bool,
    no_color: bool,
) -> None:
    from npuconv import files
    from npuconv.report import format_of, render, render_many, text

    if not found:
        return
    many = len(found) > 1
    for path in written:
        form = format_of(path)
        files.write(path, render_many(found, form) if many else render(found[0], form))
    if quiet:
        return
    if output_format == "text":
        color = screen.wants_color(no_color)
        if many:
            shown = text.render_many(found, color=color, verbose=verbose)
        else:
            shown = text.render(found[0], color=color, verbose=verbose)
    else:
        shown = render_many(found, output_format) if many else render(found[0], output_format)
    click.echo(shown, nl=False)
