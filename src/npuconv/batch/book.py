"""Outcomes of jobs: kept in memory, and written to a lock beside each output."""

from __future__ import annotations

import contextlib
import glob
from collections.abc import Iterable
from pathlib import Path

import psutil

from npuconv.batch.job import Job, Outcome
from npuconv.batch.local import Watcher
from npuconv.batch.lock import Locks


class Silent:
    """A watcher who does not look."""

    def skipped(self, count: int) -> None:
        """Ignore the number of jobs that had been done before."""

    def started(self, job: Job) -> None:
        """A job begins."""

    def stage(self, job: Job, stage: str, done: int, total: int) -> None:
        """A job has come so far."""

    def finished(self, job: Job, outcome: Outcome) -> None:
        """A job has ended."""


class Book(Silent):
    """Keeps what became of each job, and locks what is finished.

    Args:
        root: folder of the jobs file.
        locks: of the jobs.
        watcher: is told what it is told.
    """

    def __init__(self, root: Path, locks: Locks, watcher: Watcher) -> None:
        self._root, self._locks, self._watcher = root, locks, watcher
        self.outcomes: dict[str, Outcome] = {}

    def skipped(self, count: int) -> None:
        """Told on."""
        self._watcher.skipped(count)

    def started(self, job: Job) -> None:
        """Told on."""
        self._watcher.started(job)

    def stage(self, job: Job, stage: str, done: int, total: int) -> None:
        """Told on."""
        self._watcher.stage(job, stage, done, total)

    def finished(self, job: Job, outcome: Outcome) -> None:
        """Keep it, lock it, tell it."""
        sweep(self._root, [job])
        outcome = self._checked(job, outcome)
        if outcome.finished:
            self._drop_stale(job, outcome)
            self._locks.write(job, outcome)
        self.outcomes[job.name] = outcome
        self._watcher.finished(job, outcome)

    def _checked(self, job: Job, outcome: Outcome) -> Outcome:
        """A lock must not say of one model what was made of another."""
        planned = self._locks.digests.model(job)["sha256"]
        if not outcome.finished or outcome.model_sha256 == planned:
            return outcome
        return Outcome("failed", f"{job.model}: was changed while the batch ran; run it again")

    def _drop_stale(self, job: Job, outcome: Outcome) -> None:
        """A model of an earlier run must not stand beside a report that refuses it."""
        if job.output in outcome.files:
            return
        earlier = self._locks.read(job)
        path = self._root / job.output
        if earlier and earlier["outputs"].get(path.name):
            path.unlink(missing_ok=True)


def sweep(root: Path, jobs: Iterable[Job]) -> None:
    """Remove what processes that are gone have left of files they were writing."""
    for job in jobs:
        for file in job.files:
            path = root / file
            for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
                if not psutil.pid_exists(_pid(part)):
                    with contextlib.suppress(OSError):
                        part.unlink()


def _pid(part: Path) -> int:
    number = part.name.split(".")[-2]
    return int(number) if number.isdigit() else -1
