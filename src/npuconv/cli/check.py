"""``npuconv check``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from npuconv.cli import screen
from npuconv.cli.guard import guarded
from npuconv.cli.options import collect, output_options, shared_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from npuconv.config import Options
    from npuconv.report.schema import Report

DEFAULT_BASELINE = "npuconv-baseline.json"
FORMATS = ("text", "json", "sarif", "junit", "github", "markdown")


@click.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--output-format", type=click.Choice(FORMATS), default="text", help="what stdout gets"
)
@click.option(
    "--write-baseline",
    is_flag=True,
    help=f"accept what fails now: write it to the --baseline file  [default: {DEFAULT_BASELINE}]",
)
@shared_options
@output_options
@guarded
def check(
    models: tuple[str, ...],
    output_format: str,
    write_baseline: bool,
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
    those convert has. Exit code 0: nothing at or above --fail-on, but for what the
    baseline accepts; 1: findings; 2: a file that cannot be read; the others are checked
    all the same.
    """
    from npuconv.pipeline.accept import orphaned, renew
    from npuconv.report import format_of

    options, renewal = _prepared(collect(config, flags), write_baseline)
    for path in reports:
        format_of(path)
    paths = expand(models)
    failures: list[str] = []
    try:
        with screen.progress(quiet or len(paths) == 1, no_color=no_color) as bar:
            by_path = _check_all(paths, options, timings, bar, failures)
    finally:
        for failure in failures:  # not into the bar
            screen.fail(failure)
    found, unreadable = list(by_path.values()), bool(failures)
    _show(found, output_format, reports, quiet, verbose, no_color)
    if renewal:
        screen.say(renew(renewal, by_path, options.fail_on), quiet=quiet)
        return 2 if unreadable else 0
    for sentence in orphaned(options.baseline):
        screen.say(sentence, quiet=quiet)
    worst = max((report.summary.exit_code for report in found), default=0)
    return 2 if unreadable else worst


def _check_all(
    paths: list[str],
    options: Options,
    timings: bool,
    bar: Callable[[str, int, int], None],
    failures: list[str],
) -> dict[str, Report]:
    """The reports by path; ``failures`` gets a line for each file that cannot be read."""
    from npuconv.errors import ModelError
    from npuconv.pipeline.entry import check_with

    found = {}
    for number, path in enumerate(paths, 1):
        try:
            found[path] = check_with(path, options, timings=timings)
        except ModelError as error:
            failures.append(str(error))
        bar("check", number, len(paths))
    return found


def expand(models: tuple[str, ...]) -> list[str]:
    """Files as given, directories as the models in them, each once.

    What ``convert`` has written into a directory, by the name it gives, is no model to check.

    Raises:
        UsageError: a directory without models.
    """
    from npuconv.batch.job import SUFFIX
    from npuconv.errors import UsageError

    found: dict[str, None] = {}
    for model in models:
        path = Path(model)
        every = sorted(p.as_posix() for p in path.rglob("*.onnx")) if path.is_dir() else [model]
        inside = [p for p in every if p == model or not p.endswith(SUFFIX)]
        if not inside:
            made = f", but for what convert has written (*{SUFFIX})" if every else ""
            raise UsageError(f"{model}: no .onnx file in this directory{made}")
        found.update(dict.fromkeys(inside))
    return list(found)


def _prepared(options: Options, write_baseline: bool) -> tuple[Options, str]:
    """The options of the run, and the baseline that is to be written afterwards, if any."""
    from npuconv import files
    from npuconv.errors import UsageError

    if not write_baseline:
        return options, ""
    if options.fail_on == "never":
        hint = "give the --fail-on that you want to pass"
        raise UsageError("--write-baseline accepts what fails: nothing does", hint=hint)
    path = options.baseline or DEFAULT_BASELINE
    files.check_writable(path)
    return options.model_copy(update={"baseline": None}), path


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
        color, width = screen.wants_color(no_color), screen.width()
        if many:
            shown = text.render_many(found, color=color, verbose=verbose, width=width)
        else:
            shown = text.render(found[0], color=color, verbose=verbose, width=width)
    else:
        shown = render_many(found, output_format) if many else render(found[0], output_format)
    click.echo(shown, nl=False)
