"""Jobs of a batch in this process, for tests of their results."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from npuconv import executor
from npuconv.batch import local, worker
from npuconv.batch.job import Event, Job


@contextlib.contextmanager
def settings_of_worker() -> Iterator[None]:
    """Reset the settings that a worker makes for its process, at the end of a with statement."""
    try:
        yield
    finally:
        executor.limit_threads(0)


def _run(
    jobs: Iterable[Job],
    root: Path,
    *,
    threads: int = 1,
    at_once: int = 1,
    is_wanted: Callable[[], bool] = lambda: True,
) -> Generator[Event, None, None]:
    del at_once, is_wanted
    for job in jobs:
        yield Event(job)
        messages: list[dict[str, Any]] = []
        with settings_of_worker(), contextlib.chdir(root):
            outcome = worker.run(
                Job.model_validate(job.model_dump(mode="json")), threads, messages.append
            )
        yield from (Event(job, **message) for message in messages)
        yield Event(job, outcome=outcome)


def run_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run jobs in this process, in sequence: the start of a process takes most of the time."""
    monkeypatch.setattr(local, "run", _run)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run jobs in this process until the end of the test."""
    run_in_process(monkeypatch)
