"""The same jobs on Dask: a worker that dies has its job done elsewhere."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterator, Sequence
from typing import Any

from npuconv import files
from npuconv.batch import shipping
from npuconv.batch.digests import tools
from npuconv.batch.job import Job, Outcome, Place
from npuconv.batch.local import Watcher
from npuconv.batch.settings import Settings
from npuconv.batch.splitting import Splitter
from npuconv.errors import UsageError

_CONNECT = "30 s"
_RESUBMISSIONS = 10  # of a job that was not to blame for the deaths of its workers


def run(jobs: Sequence[Job], place: Place, watcher: Watcher, *, settings: Settings) -> None:
    """Run jobs on the workers of a cluster until all have ended, one way or another.

    Raises:
        UsageError: Dask is not installed, the scheduler cannot be reached, or a path cannot
            be shipped.
    """
    try:
        import distributed  # noqa: F401
    except ImportError:
        raise UsageError(
            "a cluster needs Dask, which is not installed", hint="pip install npuconv[distributed]"
        ) from None
    with _client(settings) as client:
        splitter = Splitter(client, settings, place, len(jobs))
        work = _Work(client, splitter, watcher, settings.ship)
        try:
            work.run(jobs)
        finally:
            work.close()


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
            client = stack.enter_context(Client(address, timeout=_CONNECT, set_as_default=False))
        except (OSError, ValueError) as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UsageError(f"scheduler {address}: {text}") from None
        yield client


class _Work:
    """Jobs under way on a cluster.

    Args:
        client: of Dask.
        splitter: knows where the workers run them, and what they do before.
        watcher: is told of everything, in the thread that calls ``run``.
        ship: whether files are sent there and back.
    """

    def __init__(self, client: Any, splitter: Splitter, watcher: Watcher, ship: bool) -> None:
        self._client, self._splitter = client, splitter
        self._watcher, self._ship = watcher, ship
        self._root = splitter.common.root
        self._topic = f"npuconv-{client.id}"
        self._events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._open: dict[str, Job] = {}  # by name
        self._futures: dict[str, Any] = {}
        self._tries: dict[str, int] = {}
        self._counters: dict[str, Any] = {}
        self._scattered: dict[tuple[str, ...], Any] = {}
        self._calibrated: dict[str, int] = {}  # blocks that are done, of jobs that are split

    def run(self, jobs: Sequence[Job]) -> None:
        """Submit all, and take what comes back until nothing is open."""
        self._client.subscribe_topic(self._topic, self._heard)
        self._open = {job.name: job for job in jobs}
        for number, job in enumerate(jobs):
            self._counters[job.name] = self._counter(number)
            self._submit(job)
        while self._open:
            kind, what = self._events.get()
            if kind == "done":
                self._take(*what)
            elif what in self._open:
                self._tell(kind, self._open[what])

    def _tell(self, kind: str, job: Job) -> None:
        """A job has begun: with a block of its calibration, or, if nobody has had one, itself."""
        before = self._calibrated.get(job.name)
        if kind == "started" and before is None:
            self._watcher.started(job)
        elif kind == "started":
            del self._calibrated[job.name]  # it is told again if it is lost and tried again
        elif kind == "calibrates" and before is None:
            self._calibrated[job.name] = 0
            self._watcher.started(job)
        elif kind == "calibrated" and before is not None:
            blocks = self._splitter.blocks  # of which a worker may have lost one that was done
            self._calibrated[job.name] = done = min(before + 1, blocks)
            self._watcher.stage(job, "calibrating", done, blocks)

    def close(self) -> None:
        """Cancel all jobs, unsubscribe from the topic and delete the counters."""
        self._client.cancel(list(self._futures.values()), force=True)
        self._splitter.close()
        self._client.unsubscribe_topic(self._topic)
        for counter in self._counters.values():
            counter.delete()

    def _heard(self, event: tuple[Any, Any]) -> None:
        """Queue an event; called in a thread of the client."""
        self._events.put((event[1]["kind"], event[1]["job"]))

    def _counter(self, number: int) -> Any:
        from distributed import Variable

        counter = Variable(f"{self._topic}-{number}", client=self._client)
        counter.set(0)
        return counter

    def _submit(self, job: Job) -> None:
        from npuconv.batch import remote

        request = {
            "job": job.to_json(),
            "place": self._splitter.place(job).to_json(),
            "tools": tools(),
            "counter": self._counters[job.name].name,
            "topic": self._topic,
            "ship": self._ship,
        }
        tried = self._tries[job.name] = self._tries.get(job.name, 0) + 1
        key = f"{self._topic}-{job.name}-{tried}"
        parcels = self._parcels(job) if self._ship else []
        blocks = self._splitter.submit(job, request, parcels) if tried == 1 else []
        future = self._client.submit(remote.do, request, *parcels, *blocks, key=key, pure=False)
        self._futures[job.name] = future
        future.add_done_callback(lambda done: self._events.put(("done", (job, done))))

    def _parcels(self, job: Job) -> list[Any]:
        """Files that are on the workers, or will be; each set is sent once."""
        found = []
        for paths in map(tuple, shipping.needs(job, self._root)):
            known = self._scattered.get(paths)
            if known is None or known.status != "finished":
                parcel = shipping.pack(paths, self._root)
                # On every worker: what only a dead one had would be lost.
                (known,) = self._client.scatter([parcel], broadcast=True, hash=False)
                self._scattered[paths] = known
            found.append(known)
        return found

    def _take(self, job: Job, future: Any) -> None:
        if future is not self._futures[job.name]:
            return
        if future.status == "finished":
            self._finish(job, future.result())
            return
        error = future.exception() if future.status == "error" else None
        if not _is_loss(error):  # as where a worker has no npuconv, or no space
            said = " ".join(f"{type(error).__name__}: {error}".split())
            self._end(job, Outcome("failed", f"its worker could not run it: {said}"))
        elif self._tries[job.name] < _RESUBMISSIONS:
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
    """Return whether a worker, or files only it had, were lost: the job may not be to blame."""
    from distributed import KilledWorker

    return error is None or isinstance(error, KilledWorker)
