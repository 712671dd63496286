"""``npuconv batch``."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from npuconv.cli import screen

if TYPE_CHECKING:
    from npuconv.batch.entry import Batch
    from npuconv.report.schema_batch import BatchReport

FORMATS = ("text", "json", "sarif", "junit", "github", "markdown")
INTERRUPTED = 130  # 128 + SIGINT, as shells have it
SUMMARY = ("batch.report.json", "batch.report.html")  # in the folder of the results


@click.command()
@click.argument("path", metavar="JOBS.yaml")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="at once  [default: all cores]")
@click.option(
    "--threads", type=click.IntRange(1), default=1, metavar="N", help="of each job  [default: 1]"
)
@click.option("--timeout", metavar="TIME", help="a job may take: 90, 10m, 2h; jobs may say other")
@click.option("--memory", metavar="SIZE", help="a job may take: 512MiB, 4GiB; jobs may say other")
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
@click.option("-q", "--quiet", is_flag=True, help="print nothing but errors")
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
    **flags: Any,
) -> int:
    """Convert many models for many targets, each job in a process of its own.

    JOBS.yaml says which; paths in it are relative to it. A job that crashes, or takes
    more time or memory than it may, does not touch the others. Beside each model lie its
    reports and a lock that says what it was made of: run again, only what has changed or
    failed is done. Ends well with a summary of all jobs.

    Exit code 0: all converted; 1: a job was refused, failed, crashed or was ended;
    2: the jobs file or a flag cannot be used, nothing was run; 70: a bug in npuconv.
    """
    from npuconv.batch.entry import Batch
    from npuconv.report import format_of

    for report in reports:
        format_of(report)
    work = Batch(path, _settings(flags))
    if verify_lock:
        return _verify(work, quiet)
    if dry_run:
        return _plan(work)
    with _terminable():
        try:
            found = _run(work, quiet)
        except KeyboardInterrupt:
            said = "npuconv: error: interrupted; the same command goes on where it stopped"
            click.echo(said, err=True)
            return INTERRUPTED
    _write(work, found, reports)
    _show(found, output_format, quiet, verbose, no_color)
    return found.summary.exit_code


def _settings(flags: dict[str, Any]) -> Any:
    from npuconv.batch.settings import settings

    resume, force = flags.pop("resume"), flags.pop("force")
    return settings(**flags, resume=resume and not force)


def _run(work: Batch, quiet: bool) -> BatchReport:
    from npuconv.cli.batch_screen import watching

    with watching(len(work.jobs), quiet) as watcher:
        return work.run(watcher)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends it as Ctrl-C does: no job is left running."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _plan(work: Batch) -> int:
    """Show every job, what it would write, whether it would run, and what it would lack."""
    from npuconv.report.words import count

    states, missing = work.differences(), work.missing()
    for job in work.jobs:
        state = "; ".join(states.get(job.name, ["unchanged"]))
        click.echo(f"{job.name}: {job.model} on {job.target} as {job.options.format}")
        click.echo(f"  -> {job.output}")
        click.echo(f"  {state}")
        if job.name in missing:
            screen.fail(f"{job.name}: calibration: {missing[job.name]}: no such file or directory")
    left = len(states)
    click.echo(f"{count(len(work.jobs), 'job')}, {left} to do")
    return 1 if missing else 0


def _verify(work: Batch, quiet: bool) -> int:
    """Say what is not as its lock says."""
    found = work.differences()
    for name, said in found.items():
        for one in said:
            screen.fail(f"{name}: {one}")
    right = len(work.jobs) - len(found)
    verb = "job is" if len(work.jobs) == 1 else "jobs are"
    screen.say(f"{right} of {len(work.jobs)} {verb} as locked", quiet=quiet)
    return 1 if found else 0


def _write(work: Batch, found: BatchReport, reports: tuple[str, ...]) -> None:
    from npuconv import files
    from npuconv.report import format_of
    from npuconv.report.batch import render

    home = work.root / work.expanded.output
    for path in reports or tuple(str(home / name) for name in SUMMARY):
        base = Path(os.path.relpath(work.root, Path(path).resolve().parent)).as_posix()
        files.write(path, render(found, format_of(path), base))


def _show(
    found: BatchReport, output_format: str, quiet: bool, verbose: bool, no_color: bool
) -> None:
    from npuconv.report.batch import render
    from npuconv.report.batch_text import render as render_text

    if quiet:
        return
    if output_format == "text":
        color = screen.wants_color(no_color)
        shown = render_text(found, color=color, verbose=verbose)
    else:
        shown = render(found, output_format)
    click.echo(shown, nl=False)
