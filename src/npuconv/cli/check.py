"""``npuconv check``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from npuconv.cli import screen
from npuconv.cli.guard import guarded
from npuconv.cli.options import collect, output_options, shared_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from npuconv.config import Options
    from npuconv.report import Unreadable
    from npuconv.schemas.report import Report

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
    those convert has, but for what all samples show: a line before the verdict names
    what of that was asked for. The samples are opened, and the first is run. Exit code 0:
    nothing at or above --fail-on, but for what the baseline accepts; 1: findings; 2: a file
    that cannot be read or run; the others are checked all the same.
    """
    from npuconv import files
    from npuconv.cli.destinations import read_by, refuse
    from npuconv.legalize.accept import orphaned, renew
    from npuconv.report import format_of

    options, renewal = _prepared(collect(config, flags), write_baseline)
    for path in reports:
        format_of(path)
    paths = expand(models)
    refuse(reports, read_by(paths, options, config))
    failures: list[Unreadable] = []
    try:
        with screen.progress(quiet or len(paths) == 1, no_color=no_color) as bar:
            by_path = _check_all(paths, options, timings, bar, failures)
    finally:
        for failure in failures:  # not into the bar
            screen.fail(failure.message)
    found, unreadable = list(by_path.values()), bool(failures)
    shown = _Shown(found, failures, many=len(paths) > 1)
    for path in reports:
        files.write(path, shown.as_format(format_of(path)))
    shown.show(output_format, quiet, verbose, no_color)
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
    failures: list[Unreadable],
) -> dict[str, Report]:
    """The reports by path; ``failures`` gets each model that cannot be checked.

    Of several also one that has not the input or node that a flag names, or that the samples
    do not fit: those of another may.
    """
    from npuconv.errors import CalibrationError, ModelError, UsageError
    from npuconv.pipeline.check import check_with
    from npuconv.report import Unreadable

    expected: tuple[type[Exception], ...] = (ModelError,)
    if len(paths) > 1:
        expected = (ModelError, UsageError, CalibrationError)

    found = {}
    for number, path in enumerate(paths, 1):
        try:
            found[path] = check_with(path, options, options.calibration, timings=timings)
        except expected as error:
            failures.append(Unreadable(path, _naming(path, str(error))))
        bar("check", number, len(paths))
    return found


def _naming(path: str, message: str) -> str:
    """Return the message with the model in it: of several it says which."""
    from npuconv.model.load import display_name

    name = display_name(path)
    return message if message.startswith((path, name)) else f"{name}: {message}"


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
        if not model:
            raise UsageError("the name of a model is empty", hint="'.' is the current folder")
        every = _inside(path) if os.path.isdir(path) else [model]  # noqa: PTH112 never raises
        inside = [p for p in every if p == model or not p.endswith(SUFFIX)]
        if not inside:
            made = f", but for what convert has written (*{SUFFIX})" if every else ""
            raise UsageError(f"{model}: no .onnx file in this directory{made}")
        found.update(dict.fromkeys(inside))
    return list(found)


def _inside(folder: Path) -> list[str]:
    return sorted(path.as_posix() for path in folder.rglob("*.onnx") if path.is_file())


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


class _Shown:
    """Results of a check, shown as one document.

    Args:
        found: the reports.
        unreadable: models that have none.
        many: whether several models were asked for, however many could be read.
    """

    def __init__(self, found: list[Report], unreadable: list[Unreadable], *, many: bool) -> None:
        self._found, self._unreadable = found, unreadable
        self._many = many or not found

    def as_format(self, name: str) -> str:
        """All of it in one format."""
        from npuconv.report import render, render_many

        if not self._many:
            return render(self._found[0], name)
        return render_many(self._found, name, self._unreadable)

    def show(self, name: str, quiet: bool, verbose: bool, no_color: bool) -> None:
        """Print it; ``-q`` is about text, a document that is asked for by name is printed."""
        if name == "text":
            if self._found and not quiet:
                click.echo(self._text(verbose, no_color), nl=False)
        else:
            click.echo(self.as_format(name), nl=False)

    def _text(self, verbose: bool, no_color: bool) -> str:
        """Return the text for a terminal; unreadable models were reported on stderr."""
        from npuconv.report import text

        color, width = screen.wants_color(no_color), screen.width()
        if self._many:
            return text.render_many(self._found, color=color, verbose=verbose, width=width)
        return text.render(self._found[0], color=color, verbose=verbose, width=width)
