"""Jobs on this machine: so many at a time, each in a process of its own."""

from __future__ import annotations

import os
import selectors
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from npuconv.batch.child import Child
from npuconv.batch.job import Job, Outcome, Place

_TICK = 0.1  # seconds between two looks at what the jobs take


class Watcher(Protocol):
    """Observer of the progress of a batch."""

    def skipped(self, count: int) -> None:
        """Receive the number of jobs that had been done before and are left as they are."""

    def started(self, job: Job) -> None:
        """A job begins."""

    def stage(self, job: Job, stage: str, done: int, total: int) -> None:
        """A job has come so far."""

    def finished(self, job: Job, outcome: Outcome) -> None:
        """A job has ended."""


def cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run(
    jobs: Iterable[Job],
    place: Place,
    watcher: Watcher,
    *,
    at_once: int = 1,
    wanted: Callable[[], bool] = lambda: True,
) -> None:
    """Run jobs until all have ended, one way or another.

    Args:
        jobs: what to do, in the order in which they are started.
        place: where they run.
        watcher: is told of everything, in this thread.
        at_once: how many run at the same time.
        wanted: asked now and then; when nobody wants the results any more, all is ended.
    """
    pending = deque(jobs)
    with selectors.DefaultSelector() as running:
        try:
            while (pending or running.get_map()) and wanted():
                while pending and len(running.get_map()) < at_once:
                    child = Child(pending.popleft(), place)
                    running.register(child.output, selectors.EVENT_READ, child)
                    watcher.started(child.job)
                _attend(running, watcher)
        finally:
            _end(running)


def _attend(running: selectors.BaseSelector, watcher: Watcher) -> None:
    """Hear what is said, and see to the limits."""
    for key, _ in running.select(_TICK):
        child: Child = key.data
        job = child.job
        if not child.listen(lambda *step, job=job: watcher.stage(job, *step)):
            running.unregister(child.output)
            watcher.finished(job, child.finish())
    for key in running.get_map().values():
        key.data.enforce()


def _end(running: selectors.BaseSelector) -> None:
    """End what still runs: the batch was interrupted, or has a bug."""
    children: list[Child] = [key.data for key in running.get_map().values()]
    for child in children:
        child.kill()
    for child in children:
        child.finish()
