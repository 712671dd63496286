"""Jobs on a Dask cluster: a job whose worker dies is run again on another one.

A calibration can be split: several workers first calibrate a block of samples each, and the
job depends on these blocks.
"""

from __future__ import annotations

import contextlib
import hashlib
import queue
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from npuconv import files
from npuconv.batch import remote
from npuconv.batch.job import Job, Outcome, Place, Settings, to_json
from npuconv.batch.local import Watcher
from npuconv.batch.lock import tools
from npuconv.errors import UsageError

_CONNECT_TIMEOUT = "30 s"
_MAX_SUBMISSIONS = 10  # of a job, if other jobs may be the cause of the deaths of its workers


def run(jobs: Sequence[Job], place: Place, watcher: Watcher, *, settings: Settings) -> None:
    """Run jobs on the workers of a cluster until all have ended.

    Raises:
        UsageError: Dask is not installed, the scheduler cannot be reached, or a path cannot
            be shipped.
    """
    require_dask()
    with _client(settings) as client:
        splitter = Splitter(client, settings, place, len(jobs))
        work = _Submissions(client, splitter, watcher, settings.ship)
        try:
            work.run(jobs)
        finally:
            work.close()


def require_dask() -> None:
    """Import Dask.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import distributed  # noqa: F401
    except ImportError:
        raise UsageError(
            "a cluster needs Dask, which is not installed", hint="pip install npuconv[distributed]"
        ) from None


@contextlib.contextmanager
def _client(settings: Settings) -> Iterator[Any]:
    from distributed import Client, LocalCluster

    with contextlib.ExitStack() as stack:
        address: Any = settings.scheduler
        if settings.local_cluster:
            address = stack.enter_context(
                LocalCluster(
                    n_workers=settings.local_cluster,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    silence_logs="CRITICAL",
                )
            )
        try:
            client = stack.enter_context(
                Client(address, timeout=_CONNECT_TIMEOUT, set_as_default=False)
            )
        except (OSError, ValueError) as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UsageError(f"scheduler {address}: {text}") from None
        yield client


class _Submissions:
    """Jobs submitted to a cluster.

    ``watcher`` receives all events, in the thread that calls ``run``.
    """

    def __init__(self, client: Any, splitter: Splitter, watcher: Watcher, ship: bool) -> None:
        self._client, self._splitter = client, splitter
        self._watcher, self._ship = watcher, ship
        self._root = splitter.common.root
        self._topic = f"npuconv-{client.id}"
        self._events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._open: dict[str, Job] = {}  # by name
        self._futures: dict[str, Any] = {}
        self._submitted: dict[str, int] = {}  # how often, by name
        self._counters: dict[str, Any] = {}
        self._scattered: dict[tuple[str, ...], Any] = {}
        self._calibrated: dict[str, int] = {}  # blocks that are done, of jobs that are split

    def run(self, jobs: Sequence[Job]) -> None:
        """Submit all jobs and handle events until none is open."""
        self._client.subscribe_topic(self._topic, self._queue)
        self._open = {job.name: job for job in jobs}
        for number, job in enumerate(jobs):
            self._counters[job.name] = _counter(self._client, f"{self._topic}-{number}")
            self._submit(job)
        while self._open:
            kind, what = self._events.get()
            if kind == "done":
                self._handle_result(*what)
            elif what in self._open:
                self._notify(kind, self._open[what])

    def _notify(self, kind: str, job: Job) -> None:
        """Notify the watcher: a job starts with its first block, or by itself if it has none."""
        before = self._calibrated.get(job.name)
        if kind == "started" and before is None:
            self._watcher.started(job)
        elif kind == "started":
            del self._calibrated[job.name]  # a start after this is one of another attempt
        elif kind == "calibrates" and before is None:
            self._calibrated[job.name] = 0
            self._watcher.started(job)
        elif kind == "calibrated" and before is not None:
            blocks = self._splitter.blocks  # a lost one may be calibrated twice
            self._calibrated[job.name] = done = min(before + 1, blocks)
            self._watcher.stage(job, "calibrate", done, blocks)

    def close(self) -> None:
        """Cancel all jobs, unsubscribe from the topic and delete the counters."""
        self._client.cancel(list(self._futures.values()), force=True)
        self._splitter.close()
        self._client.unsubscribe_topic(self._topic)
        for counter in self._counters.values():
            counter.delete()

    def _queue(self, event: tuple[Any, Any]) -> None:
        """Queue an event; called in a thread of the client."""
        self._events.put((event[1]["kind"], event[1]["job"]))

    def _submit(self, job: Job) -> None:
        request = {
            "job": to_json(job),
            "place": to_json(self._splitter.place(job)),
            "tools": tools(),
            "counter": self._counters[job.name].name,
            "topic": self._topic,
            "ship": self._ship,
        }
        tried = self._submitted[job.name] = self._submitted.get(job.name, 0) + 1
        key = f"{self._topic}-{job.name}-{tried}"
        parcels = self._parcels(job) if self._ship else []
        blocks = self._splitter.submit(job, request, parcels) if tried == 1 else []
        future = self._client.submit(remote.do, request, *parcels, *blocks, key=key, pure=False)
        self._futures[job.name] = future
        future.add_done_callback(lambda done: self._events.put(("done", (job, done))))

    def _parcels(self, job: Job) -> list[Any]:
        """Return the files of a job as futures; each set of files is sent once."""
        found = []
        for paths in map(tuple, remote.needs(job, self._root)):
            known = self._scattered.get(paths)
            if known is None or known.status != "finished":
                parcel = remote.pack(paths, self._root)
                # On every worker, so that none is lost when a worker dies.
                (known,) = self._client.scatter([parcel], broadcast=True, hash=False)
                self._scattered[paths] = known
            found.append(known)
        return found

    def _handle_result(self, job: Job, future: Any) -> None:
        if future is not self._futures[job.name]:
            return
        if future.status == "finished":
            self._finish(job, future.result())
            return
        error = future.exception() if future.status == "error" else None
        if not _is_loss(error):  # as where a worker has no npuconv, or no space
            said = " ".join(f"{type(error).__name__}: {error}".split())
            self._end(job, Outcome("failed", f"its worker could not run it: {said}"))
        elif self._submitted[job.name] < _MAX_SUBMISSIONS:
            self._submit(job)
        else:
            self._end(job, Outcome("lost", "its workers died again and again; given up"))

    def _finish(self, job: Job, result: dict[str, Any]) -> None:
        for path, data in result["files"].items():
            files.write(self._root / path, data)
        self._end(job, Outcome(**result["outcome"]))

    def _end(self, job: Job, outcome: Outcome) -> None:
        del self._open[job.name]
        self._splitter.ended(job, outcome)
        self._watcher.finished(job, outcome)


def _is_loss(error: BaseException | None) -> bool:
    """Return whether a worker or its files were lost, which may be the fault of another job."""
    from distributed import KilledWorker

    return error is None or isinstance(error, KilledWorker)


def _counter(client: Any, name: str) -> Any:
    from distributed import Variable

    counter = Variable(name, client=client)
    counter.set(0)
    return counter


class Splitter:
    """Submitter of the calibration blocks that jobs depend on."""

    def __init__(self, client: Any, settings: Settings, place: Place, jobs: int) -> None:
        self._client, self.common = client, place
        at_once = sum(client.nthreads().values())
        wanted = settings.split_calibration
        wanted = at_once > jobs if wanted is None else wanted
        self.blocks = at_once if wanted and at_once > 1 else 0
        self._futures: dict[str, list[Any]] = {}  # by name of the job
        self._counters: list[Any] = []  # of attempts at blocks

    def place(self, job: Job) -> Place:
        """Return the place of a job; for a split one, with the folder of its calibrated blocks."""
        if not self.blocks or not job.calibrates:
            return self.common
        return replace(self.common, parts=self.common.root / (job.options.cache or self._own(job)))

    def submit(self, job: Job, request: dict[str, Any], parcels: list[Any]) -> list[Any]:
        """Submit the blocks of a job.

        Each block gets a counter of its own.

        Returns:
            Their futures: of the files they write, where none are shared.
        """
        if request["place"]["parts"] is None:
            return []
        self._futures[job.name] = found = [
            self._submit_block(job, request, number, parcels) for number in range(self.blocks)
        ]
        return found

    def _submit_block(
        self, job: Job, request: dict[str, Any], number: int, parcels: list[Any]
    ) -> Any:
        name, block = f"{request['counter']}-{number}", (number, self.blocks)
        self._counters.append(_counter(self._client, name))
        own = {**request, "counter": name}
        key = f"{name}-{job.name}"
        return self._client.submit(remote.calibrate, own, block, *parcels, key=key, pure=False)

    def ended(self, job: Job, outcome: Outcome) -> None:
        """Drop the calibration blocks of a job.

        Their folder is deleted if the job has finished and names no cache; a job that will be
        tried again may use it.
        """
        self._futures.pop(job.name, None)
        if outcome.finished and not job.options.cache:
            shutil.rmtree(self._own(job), ignore_errors=True)

    def close(self) -> None:
        """Cancel all blocks and delete their counters."""
        futures = [future for found in self._futures.values() for future in found]
        self._client.cancel(futures, force=True)
        for counter in self._counters:
            counter.delete()

    def _own(self, job: Job) -> Path:
        digest = hashlib.sha256(str(self.common.root / job.output).encode()).hexdigest()
        return self.common.cache / f"calibration-{digest[:16]}"
