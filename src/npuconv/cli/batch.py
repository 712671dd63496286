"""``npuconv batch``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import click

from npuconv import files
from npuconv.batch.job import Job, Outcome, Settings, make_settings
from npuconv.batch.run_jobs import Batch, Watcher
from npuconv.cli import screen
from npuconv.cli.guard import check_destinations, signal_exit_code
from npuconv.cli.help import GroupedCommand, output_format_option
from npuconv.cli.options import chosen_config, parse_flags, refuse_empty, shared_options
from npuconv.errors import UsageError
from npuconv.report import PRINTED, format_of, render_batch
from npuconv.report.escape import plain
from npuconv.report.groups import shown_names
from npuconv.report.json import dumps
from npuconv.report.words import count
from npuconv.timings import Progress

_OF_CONVERT = ("Input", "Device", "Accuracy", "Gates")  # groups of flags that convert explains
_NUMBER, _OVERRIDE = click.IntRange(1), "JOBS.yaml may override it"
_SUMMARY = ("batch.report.json", "batch.report.html")  # files in the folder of the results


@click.command(cls=GroupedCommand, brief_without=_OF_CONVERT)
@click.argument("path", metavar="JOBS.yaml")
@click.option("--jobs", type=_NUMBER, metavar="N", help="jobs at once  [default: all cores]")
@click.option(
    "--threads", type=_NUMBER, default=1, metavar="N", help="threads of each job  [default: 1]"
)
@click.option("--timeout", metavar="TIME", help=f"time limit of a job: 90, 10m, 2h; {_OVERRIDE}")
@click.option("--memory", metavar="SIZE", help=f"memory limit of a job: 512MiB, 4GiB; {_OVERRIDE}")
@click.option(
    "--resume/--no-resume", default=True, help="skip jobs that are done and unchanged  [default]"
)
@click.option("--dry-run", is_flag=True, help="show what a run would do")
@click.option("--scheduler", metavar="ADDRESS", help="run on Dask: tcp://host:8786")
@shared_options
@output_format_option(*PRINTED)
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
    output_format: str,
    reports: tuple[str, ...],
    quiet: bool,
    verbose: bool,
    no_color: bool,
    config: str | None,
    **flags: Any,
) -> int:
    """Convert many models for many targets, each job in a process of its own.

    JOBS.yaml lists them; its paths are relative to it. A job that crashes, or takes more time
    or memory than it may, does not touch the others. Run again, it repeats only changed
    and failed jobs.

    The flags of convert (--help-all) hold for every job and win over JOBS.yaml, which wins
    over --config. Their paths are relative to the current folder.

    Exit code 0: all converted; 1: a job was refused, failed, crashed or was ended; 2: the
    jobs file or a flag cannot be used; 70: a bug in npuconv; 130, 143: ended by a signal.
    """
    for report in reports:
        format_of(report)
    refuse_empty({"config": config, **flags})
    config = chosen_config(config, quiet=quiet)
    settings = make_settings(**{name: flags.pop(name) for name in Settings.model_fields})
    work = Batch(path, settings, parse_flags(flags), config)
    if dry_run:
        return _show_plan(work, output_format, quiet)
    written = reports or tuple(str(work.output / name) for name in _SUMMARY)
    _check_summaries(work, written, config)
    try:
        with screen.progress(quiet, no_color=no_color) as bar:
            result = work.run(ProgressLines(work.jobs, quiet, bar))
    except KeyboardInterrupt as error:
        screen.fail("interrupted; the same command goes on where it stopped")
        return signal_exit_code(error)
    for summary in written:
        base = Path(os.path.relpath(work.root, Path(summary).resolve().parent)).as_posix()
        files.write(summary, render_batch(result, format_of(summary), base))
    from npuconv.report import text

    if output_format != "text":
        click.echo(render_batch(result, output_format), nl=False)
    elif not quiet:
        color, width = screen.wants_color(no_color), screen.width()
        lines = text.render_batch(result, color=color, verbose=verbose, width=width)
        click.echo(lines, nl=False)
    return result.summary.exit_code


def _check_summaries(work: Batch, written: tuple[str, ...], config: str | None) -> None:
    """Refuse a summary that cannot be written, before jobs that may take hours."""
    results = {(work.root / file).resolve() for job in work.jobs for file in job.files}
    folders = {parent for folder in work.folders for parent in (folder, *folder.parents)}
    inputs = [(work.expanded.file, "the jobs file")]
    inputs += [(Path(config), "the configuration")] if config is not None else []
    roles = {"calibration": "the calibration samples", "baseline": "the baseline"}
    for job, (key, role) in product(work.jobs, roles.items()):
        if name := getattr(job.options, key):
            inputs.append((work.root / name, role))
    for path in written:
        place = Path(path).resolve()
        if place in results:
            hint = "give another --report"
            raise UsageError(f"{path}: would overwrite the result of a job", hint=hint)
        if place.parent not in folders or place.parent.is_dir():  # the batch makes other folders
            check_destinations([path], inputs)


def _show_plan(work: Batch, output_format: str, quiet: bool) -> int:
    """Show every job, the model it would write, and why it would run, if it would.

    Returns:
        The exit code: 1 if samples are missing.

    Raises:
        UsageError: a plan has no such format.
    """
    if output_format not in ("text", "json"):
        raise UsageError(f"--dry-run prints text or json, not {output_format}")
    reasons, missing = work.to_do(), work.missing()
    for name, lack in missing.items():
        screen.fail(f"{name}: {lack}")
    if output_format == "json":
        rows = [
            {
                "name": job.name,
                "model": job.model,
                "target": job.target,
                "format": job.options.format,
                "output": job.output,
                "to_do": reasons.get(job.name, []),
            }
            for job in work.jobs
        ]
        click.echo(dumps({"jobs": rows}), nl=False)
    elif not quiet:
        for job in work.jobs:
            click.echo(f"{job.name}: {job.model} on {job.target} as {job.options.format}")
            click.echo(f"  -> {job.output}")
            click.echo(f"  {'; '.join(reasons.get(job.name, ['unchanged']))}")
        click.echo(f"{count(len(work.jobs), 'job')}, {len(reasons)} to do")
    return 1 if missing else 0


class ProgressLines(Watcher):
    """Watcher that prints a line for each job that has ended, and shows the others in a bar."""

    def __init__(self, jobs: Sequence[Job], quiet: bool, bar: Progress) -> None:
        self._total, self._quiet, self._bar, self._done = len(jobs), quiet, bar, 0
        names = shown_names({job.name: job.model for job in jobs})
        self._names = {name: plain(label) for name, label in names.items()}

    def skipped(self, count: int) -> None:
        """Count the jobs that an earlier run has done, and print how many."""
        self._done += count
        if count:
            jobs = "1 job is" if self._total == 1 else f"{self._total} jobs are"
            screen.say(f"{count} of {jobs} done and unchanged", quiet=self._quiet)

    def started(self, job: Job) -> None:
        """Show the job."""
        self._bar(self._names[job.name], self._done, self._total)

    def stage(self, job: Job, stage: str) -> None:
        """Show the job with its stage."""
        self._bar(f"{self._names[job.name]}: {stage}", self._done, self._total)

    def finished(self, job: Job, outcome: Outcome) -> None:
        """Print how it ended."""
        self._done += 1
        cause = "" if outcome.finished else f": {plain(outcome.message)}"
        text = f"[{self._done}/{self._total}] {self._names[job.name]}: {outcome.status}{cause}"
        screen.say(text, quiet=self._quiet)
        self._bar("", self._done, self._total)
