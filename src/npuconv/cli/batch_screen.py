"""Output of a batch: its plan, the check of its lock files, its progress.

Progress is a bar for each running job on a terminal; elsewhere, a line for each finished job.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from npuconv.batch.local import Watcher
from npuconv.cli import screen
from npuconv.errors import UsageError

if TYPE_CHECKING:
    from npuconv.batch.entry import Batch
    from npuconv.batch.job import Job, Outcome


class Lines(Watcher):
    """A line for each job that has ended.

    Args:
        total: how many jobs there are.
        quiet: say nothing.
    """

    def __init__(self, total: int, quiet: bool) -> None:
        self._total, self._quiet = total, quiet
        self.done = 0

    def skipped(self, count: int) -> None:
        """Count the jobs that an earlier run has done, and print how many."""
        self.done += count
        if count:
            self.say(f"{_part(count, self._total)} done and unchanged")

    def finished(self, job: Job, outcome: Outcome) -> None:
        """Say how it ended."""
        from npuconv.report.escape import plain

        self.done += 1
        cause = "" if outcome.finished else f": {outcome.message}"
        text = f"[{self.done}/{self._total}] {job.name}: {outcome.status}{cause}"
        self.say(plain(text))

    def say(self, text: str) -> None:
        """A line for people."""
        screen.say(text, quiet=self._quiet)


class Bars(Lines):
    """The same, and below it a bar for each job that runs.

    Args:
        total: how many jobs there are.
        progress: where the bars are.
    """

    def __init__(self, total: int, progress: Any) -> None:
        super().__init__(total, quiet=False)
        self._progress = progress
        self._tasks: dict[str, Any] = {}

    def started(self, job: Job) -> None:
        """Add a bar for the job; remove the bar of an earlier attempt."""
        from npuconv.report.escape import plain

        name = plain(job.name)
        if job.name in self._tasks:  # its worker died, and it begins anew
            self._progress.remove_task(self._tasks[job.name])
        self._tasks[job.name] = self._progress.add_task(name, total=None, stage="")

    def stage(self, job: Job, stage: str, done: int, total: int) -> None:
        """Update the bar of the job."""
        task = self._tasks.get(job.name)
        if task is not None:
            self._progress.update(task, completed=done, total=total, stage=stage)

    def finished(self, job: Job, outcome: Outcome) -> None:
        """Remove the bar of the job, and print how it ended."""
        if job.name in self._tasks:
            self._progress.remove_task(self._tasks.pop(job.name))
        super().finished(job, outcome)

    def say(self, text: str) -> None:
        """Print a line above the bars, so that it does not overwrite them."""
        self._progress.console.print(
            f"npuconv: {text}", markup=False, highlight=False, soft_wrap=True
        )


@contextlib.contextmanager
def watching(total: int, quiet: bool) -> Iterator[Watcher]:
    """Show the progress of ``total`` jobs within a with statement."""
    if quiet or not sys.stderr.isatty():
        yield Lines(total, quiet)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[stage]}", markup=False),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield Bars(total, progress)


def plan(work: Batch, output_format: str, quiet: bool) -> int:
    """Show every job, what it would write, and why it would run, if it would.

    Returns:
        The exit code: 1 if samples are missing.

    Raises:
        UsageError: a plan has no such format.
    """
    from npuconv.report.words import count

    reasons, missing = work.to_do(), work.missing()
    for name, path in missing.items():
        screen.fail(f"{name}: calibration: {path}: no such file or directory")
    if _is_json("--dry-run", output_format):
        _print_json(work.jobs, "to_do", reasons)
    elif not quiet:
        for job in work.jobs:
            click.echo(f"{job.name}: {job.model} on {job.target} as {job.options.format}")
            click.echo(f"  -> {job.output}")
            click.echo(f"  {'; '.join(reasons.get(job.name, ['unchanged']))}")
        click.echo(f"{count(len(work.jobs), 'job')}, {len(reasons)} to do")
    return 1 if missing else 0


def verify(work: Batch, output_format: str, quiet: bool) -> int:
    """Say what is not as its lock says.

    Returns:
        The exit code: 1 if anything is not.

    Raises:
        UsageError: differences have no such format.
    """
    found = work.differences()
    if _is_json("--verify-lock", output_format):
        _print_json(work.jobs, "differences", found)
        return 1 if found else 0
    for name, said in found.items():
        for one in said:
            screen.fail(f"{name}: {one}")
    every = len(work.jobs)
    screen.say(f"{_part(every - len(found), every)} as locked", quiet=quiet)
    return 1 if found else 0


def _part(number: int, total: int) -> str:
    """``2 of 7 jobs are``."""
    return f"{number} of 1 job is" if total == 1 else f"{number} of {total} jobs are"


def _is_json(flag: str, output_format: str) -> bool:
    """Return whether the format is json; raise ``UsageError`` if it is neither json nor text."""
    if output_format not in ("text", "json"):
        raise UsageError(f"{flag} prints text or json, not {output_format}")
    return output_format == "json"


def _print_json(jobs: Sequence[Job], key: str, said: Mapping[str, list[str]]) -> None:
    from npuconv.report.json import dumps

    rows = [
        {
            "name": job.name,
            "model": job.model,
            "target": job.target,
            "format": job.options.format,
            "output": job.output,
            key: said.get(job.name, []),
        }
        for job in jobs
    ]
    click.echo(dumps({"jobs": rows}), nl=False)
