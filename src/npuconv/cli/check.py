"""``npuconv check``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from npuconv import files
from npuconv.cli import screen
from npuconv.cli.guard import check_destinations, guarded, input_files
from npuconv.cli.help import BriefOption, GroupedCommand, output_format_option
from npuconv.cli.models import expand, model_names
from npuconv.cli.options import chosen_config, collect, output_options, shared_options
from npuconv.cli.verdict import after_check, show, show_many
from npuconv.config import Options
from npuconv.errors import CalibrationError, ModelError, UsageError
from npuconv.report import PRINTED, Unreadable, format_of, render, render_many
from npuconv.schemas.report import Report

DEFAULT_BASELINE = "npuconv-baseline.json"


@click.command(cls=GroupedCommand)
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@output_format_option(*PRINTED)
@click.option(
    "--write-baseline",
    is_flag=True,
    help=f"accept what fails now; written to --baseline  [default: {DEFAULT_BASELINE}]",
    cls=BriefOption,
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

    MODEL is a file, or a folder that is searched for .onnx files. It reports the
    findings of convert, except findings that need all samples: check runs only the first.
    Exit code 0: nothing at or above --fail-on; 1: findings; 2: a file cannot be used.
    """
    from npuconv.legalize.selection import orphaned, renew

    config = chosen_config(config, quiet=quiet)
    options, renewal = _prepare_options(config, flags, write_baseline)
    for path in reports:
        format_of(path)
    paths = expand(models)
    check_destinations(reports, input_files(paths, options, config))
    failures: list[Unreadable] = []
    try:
        with screen.progress(quiet or len(paths) == 1, no_color=no_color) as bar:
            by_path = _check_all(paths, options, timings, bar, failures)
    finally:
        for failure in failures:  # below the bar
            screen.fail(failure.message)
    results, many = list(by_path.values()), len(paths) > 1

    def rendered(form: str) -> str:
        return (
            render_many(results, form, failures)
            if many or not results
            else render(results[0], form)
        )

    for path in reports:
        files.write(path, rendered(format_of(path)))
    if output_format != "text":  # -q is about text only
        click.echo(rendered(output_format), nl=False)
    elif results and not quiet:  # stderr has the unreadable models
        names = model_names(list(by_path), models)
        if len(results) > 1:
            show_many(results, names, verbose=verbose, no_color=no_color)
        else:
            command = "" if many else after_check(results[0], paths[0], config, flags)
            show(results[0], names[0], verbose=verbose, no_color=no_color, command=command)
    if renewal:
        screen.say(renew(renewal, by_path, options.fail_on), quiet=quiet)
        return 2 if failures else 0
    for sentence in orphaned(options.baseline):
        screen.say(sentence, quiet=quiet)
    worst = max((report.summary.exit_code for report in results), default=0)
    return 2 if failures else worst


def _check_all(
    paths: list[str],
    options: Options,
    timings: bool,
    bar: Callable[[str, int, int], None],
    failures: list[Unreadable],
) -> dict[str, Report]:
    """Return the reports by path; add models that cannot be checked to ``failures``.

    Of several models, that includes one without the input or node that a flag names, and one
    that the samples do not fit: they may fit another.
    """
    from npuconv.check_model import check_with
    from npuconv.model.load import display_name

    expected: tuple[type[Exception], ...] = (ModelError,)
    if len(paths) > 1:
        expected = (ModelError, UsageError, CalibrationError)

    by_path = {}
    for number, (path, name) in enumerate(zip(paths, model_names(paths), strict=True)):
        bar(name, number, len(paths))
        try:
            by_path[path] = check_with(path, options, options.calibration, timings=timings)
        except expected as error:
            message, name = str(error), display_name(path)
            named = message.startswith((path, name))
            failures.append(Unreadable(path, message if named else f"{name}: {message}"))
        bar(name, number + 1, len(paths))
    return by_path


def _prepare_options(
    config: str | None, flags: dict[str, Any], write_baseline: bool
) -> tuple[Options, str]:
    """Return the options of the run, and the path of the baseline to write after it, if any."""
    if not write_baseline:
        return collect(config, flags), ""
    options = collect(config, flags, read=("target", "calibration"))
    if options.fail_on == "never":
        hint = "give the --fail-on that you want to pass"
        raise UsageError("--write-baseline accepts what fails: nothing does", hint=hint)
    path = options.baseline or DEFAULT_BASELINE
    files.check_writable(path)
    return options.model_copy(update={"baseline": None}), path
