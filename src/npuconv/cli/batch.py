"""``npuconv batch``."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from npuconv.cli import screen
from npuconv.cli.options import given, refuse_empty, shared_options
from npuconv.cli.signals import Terminated, ended_by

if TYPE_CHECKING:
    from npuconv.batch.entry import Batch
    from npuconv.schemas.batch import BatchReport

FORMATS = ("text", "json", "sarif", "junit", "github", "markdown")
# Flags that say how jobs are run, besides those of what is done anew.
_OWN = (
    "jobs", "threads", "timeout", "memory", "cache", "scheduler", "local_cluster", "ship",
    "split_calibration",
)  # fmt: skip
SUMMARY = ("batch.report.json", "batch.report.html")  # in the folder of the results


def _checked(_: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A quantity as given; refused here, where it is known which flag it is of."""
    from npuconv.batch.settings import LIMIT_PARSERS

    try:
        if value is not None:
            LIMIT_PARSERS[str(parameter.name)](value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    return value


@click.command()
@click.argument("path", metavar="JOBS.yaml")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="at once  [default: all cores]")
@click.option(
    "--threads", type=click.IntRange(1), default=1, metavar="N", help="of each job  [default: 1]"
)
@click.option(
    "--timeout",
    metavar="TIME",
    callback=_checked,
    help="a job may take: 90, 10m, 2h; jobs may say other",
)
@click.option(
    "--memory",
    metavar="SIZE",
    callback=_checked,
    help="a job may take: 512MiB, 4GiB; jobs may say other",
)
@click.option(
    "--resume/--no-resume", default=True, help="leave what is done and unchanged  [default]"
)
@click.option("--force", is_flag=True, help="do every job again; the same as --no-resume")
@click.option("--dry-run", is_flag=True, help="show the jobs and what they would do")
@click.option("--verify-lock", is_flag=True, help="fail if anything is not as locked; run nothing")
@click.option("--cache", metavar="DIR", help="decoded samples  [default: in the output folder]")
@click.option("--scheduler", metavar="ADDRESS", help="run on Dask: tcp://host:8786")
@click.option(
    "--local-cluster", type=click.IntRange(0), default=0, metavar="N", help="Dask on N workers here"
)
@click.option("--ship", is_flag=True, help="send files to the workers, who see no shared path")
@click.option(
    "--split-calibration/--no-split-calibration",
    default=None,
    help="all workers calibrate for one job  [default: if they are more than the jobs]",
)
@functools.partial(shared_options, without=("cache",))  # which is that of decoded samples here
@click.option(
    "--output-format", type=click.Choice(FORMATS), default="text", help="what stdout gets"
)
@click.option(
    "--report",
    "reports",
    multiple=True,
    metavar="FILE",
    help="write the summary; .json .html .md .sarif .xml .txt; repeatable",
)
@click.option(
    "-q",
    "--quiet",
    is_flag=True,
    help="print nothing but errors, and what --output-format asks for",
)
@click.option("-v", "--verbose", is_flag=True, help="also the files of every job")
@click.option("--no-color", is_flag=True, help="no colours; NO_COLOR does the same")
def batch(
    path: str,
    dry_run: bool,
    verify_lock: bool,
    output_format: str,
    reports: tuple[str, ...],
    quiet: bool,
    verbose: bool,
    no_color: bool,
    config: str | None,
    **flags: Any,
) -> int:
    """Convert many models for many targets, each job in a process of its own.

    JOBS.yaml says which; paths in it are relative to it. A job that crashes, or takes
    more time or memory than it may, does not touch the others. Beside each model lie its
    reports and a lock that says what it was made of: run again, only what has changed or
    failed is done. Ends well with a summary of all jobs.

    Flags that convert has as well hold for every job and win over JOBS.yaml, which wins over
    --config. Their paths are relative to the current folder.

    Exit code 0: all converted; 1: a job was refused, failed, crashed or was ended;
    2: the jobs file or a flag cannot be used, nothing was run; 70: a bug in npuconv; 130 and
    143: ended by Ctrl-C or SIGTERM.
    """
    from npuconv.batch.entry import Batch
    from npuconv.report import format_of

    for report in reports:
        format_of(report)
    refuse_empty({"config": config, **flags})
    chosen = _settings(flags)
    work = Batch(path, chosen, given(flags), config)
    if verify_lock or dry_run:
        from npuconv.cli import batch_screen

        show = batch_screen.verify if verify_lock else batch_screen.plan
        return show(work, output_format, quiet)
    written = reports or tuple(str(work.output / name) for name in SUMMARY)
    _check_writable(work, written, config)
    with _terminable():
        try:
            found = _run(work, quiet)
        except KeyboardInterrupt as error:
            said = "npuconv: error: interrupted; the same command goes on where it stopped"
            click.echo(said, err=True)
            return ended_by(error)
    _write(work, found, written)
    _show(found, output_format, quiet, verbose, no_color)
    return found.summary.exit_code


def _settings(flags: dict[str, Any]) -> Any:
    """Take the flags about how jobs run out of ``flags``, and return them as settings."""
    from npuconv.batch.settings import make_settings

    resume, force = flags.pop("resume"), flags.pop("force")
    own = {name: flags.pop(name) for name in _OWN}
    return make_settings(**own, resume=resume and not force)


def _run(work: Batch, quiet: bool) -> BatchReport:
    from npuconv.cli.batch_screen import watching

    with watching(len(work.jobs), quiet) as watcher:
        return work.run(watcher)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends it as Ctrl-C does: no job is left running."""

    def interrupt(*_: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_writable(work: Batch, written: tuple[str, ...], config: str | None) -> None:
    """Refuse a summary that could not be written, before hours are spent on it."""
    from npuconv.cli.destinations import refuse
    from npuconv.errors import UsageError

    results = {(work.root / file).resolve() for job in work.jobs for file in job.files}
    made = {folder for one in work.folders for folder in (one, *one.parents)}
    for path in written:
        place = Path(path).resolve()
        if place in results:
            hint = "give another --report"
            raise UsageError(f"{path}: would overwrite the result of a job", hint=hint)
        if place.parent not in made or place.parent.is_dir():  # else the batch makes it
            refuse([path], _read(work, config))


def _read(work: Batch, config: str | None) -> Iterator[tuple[Path, str]]:
    """The files a batch is made of that a summary could have the name of."""
    yield work.expanded.file, "the jobs file"
    if config is not None:
        yield Path(config), "the configuration"
    for options in (job.options for job in work.jobs):
        for key, what in (("calibration", "the calibration samples"), ("baseline", "the baseline")):
            if getattr(options, key):
                yield work.root / getattr(options, key), what


def _write(work: Batch, found: BatchReport, written: tuple[str, ...]) -> None:
    from npuconv import files
    from npuconv.report import format_of, render_batch

    for path in written:
        base = Path(os.path.relpath(work.root, Path(path).resolve().parent)).as_posix()
        files.write(path, render_batch(found, format_of(path), base))


def _show(
    found: BatchReport, output_format: str, quiet: bool, verbose: bool, no_color: bool
) -> None:
    from npuconv.report import render_batch
    from npuconv.report.text import render_batch as render_text

    if output_format == "text":
        if quiet:
            return
        color = screen.wants_color(no_color)
        shown = render_text(found, color=color, verbose=verbose)
    else:
        shown = render_batch(found, output_format)
    click.echo(shown, nl=False)
