"""Jobs of a batch in this process, for tests that are about their results."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

import pytest

from npuconv import executor
from npuconv.batch import local, worker
from npuconv.batch.job import Job, Place, from_json, to_json
from npuconv.calibration.collect import share
from npuconv.samples.images import keep_in


@contextlib.contextmanager
def settings_of_worker() -> Iterator[None]:
    """Reset what a worker sets for its process at the end of a with statement."""
    try:
        yield
    finally:
        executor.limit_threads(0)
        keep_in("")
        share(None)


def _run(
    jobs: Iterable[Job],
    place: Place,
    watcher: local.Watcher,
    *,
    at_once: int = 1,
    wanted: Callable[[], bool] = lambda: True,
) -> None:
    del at_once, wanted
    for job in jobs:
        watcher.started(job)
        with settings_of_worker(), contextlib.chdir(place.root):
            sent = from_json(Job, to_json(job))
            outcome = worker.run(
                sent, from_json(Place, to_json(place)), _stage_sender(watcher, job)
            )
        watcher.finished(job, outcome)


def _stage_sender(watcher: local.Watcher, job: Job) -> worker.Send:
    return lambda message: watcher.stage(job, **message)


def run_in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run jobs one by one in this process: starting one for each takes most of the time."""
    monkeypatch.setattr(local, "run", _run)


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run jobs in this process until the end of the test."""
    run_in_process(monkeypatch)
