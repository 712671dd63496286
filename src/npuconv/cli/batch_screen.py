"""How a batch goes: a line for each running job on a terminal, one for each done elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from npuconv.cli import screen

if TYPE_CHECKING:
    from npuconv.batch.job import Job, Outcome
    from npuconv.batch.local import Watcher


class Lines:
    """A line for each job that has ended.

    Args:
        total: how many jobs there are.
        quiet: say nothing.
    """

    def __init__(self, total: int, quiet: bool) -> None:
        self._total, self._quiet = total, quiet
        self.done = 0

    def skipped(self, count: int) -> None:
        """So many had been done before."""
        self.done += count
        if count:
            verb = "job is" if self._total == 1 else "jobs are"
            self.say(f"{count} of {self._total} {verb} done and unchanged")

    def started(self, job: Job) -> None:
        """Nothing is said of it."""

    def stage(self, job: Job, stage: str, done: int, total: int) -> None:
        """Nothing is said of it."""

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
        """It gets a line."""
        from npuconv.report.escape import plain

        name = plain(job.name)
        if job.name in self._tasks:  # its worker died, and it begins anew
            self._progress.remove_task(self._tasks[job.name])
        self._tasks[job.name] = self._progress.add_task(name, total=None, stage="")

    def stage(self, job: Job, stage: str, done: int, total: int) -> None:
        """Its line says how far it is."""
        task = self._tasks.get(job.name)
        if task is not None:
            self._progress.update(task, completed=done, total=total, stage=stage)

    def finished(self, job: Job, outcome: Outcome) -> None:
        """Its line goes, and one that stays says how it ended."""
        if job.name in self._tasks:
            self._progress.remove_task(self._tasks.pop(job.name))
        super().finished(job, outcome)

    def say(self, text: str) -> None:
        """Above the bars, which would otherwise be written over."""
        self._progress.console.print(
            f"npuconv: {text}", markup=False, highlight=False, soft_wrap=True
        )


@contextlib.contextmanager
def watching(total: int, quiet: bool) -> Iterator[Watcher]:
    """Who watches a batch of so many jobs."""
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
