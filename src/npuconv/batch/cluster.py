"""Jobs on a Dask cluster.

A job is one task, which runs the job in a child process of the worker. If the worker dies, Dask
runs the task on another one. The number of runs is kept in the metadata of the scheduler, so that
a job whose workers keep dying is given up. Workers have the folder of the jobs file at the same
path.
"""

from __future__ import annotations

import queue
from collections import Counter
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from npuconv.batch import local
from npuconv.batch.fingerprint import tools
from npuconv.batch.job import Event, Job, Outcome
from npuconv.errors import UsageError

_CONNECT_TIMEOUT = "30 s"
_MAX_RUNS = 2  # number of runs of a job whose workers die
_MAX_SUBMISSIONS = 10  # number of submissions of a job: other jobs may have killed its workers


def run(
    jobs: Sequence[Job], root: Path, scheduler: str, *, threads: int = 1
) -> Generator[Event, None, None]:
    """Run jobs on the workers of a cluster and yield their events.

    The running jobs are ended when the caller closes the iterator.

    Raises:
        UsageError: Dask is not installed, or the scheduler cannot be reached.
    """
    require_dask()
    from distributed import KilledWorker

    # Pairs of a job and its completed future, and messages of workers.
    received: queue.SimpleQueue[Any] = queue.SimpleQueue()
    running: dict[str, tuple[Job, Any]] = {}  # job and its future, by job name
    submissions: Counter[str] = Counter()  # number of submissions, by job name
    with _connect(scheduler) as client:
        batch = f"npuconv-{client.id}"  # metadata key of the run counts; topic of messages

        def submit(job: Job) -> None:
            submissions[job.name] += 1
            plain = {"root": str(root), "threads": threads, "job": job.model_dump(mode="json")}
            request = {**plain, "tools": tools(), "batch": batch}
            future = client.submit(run_on_worker, request, pure=False)
            running[job.name] = job, future
            future.add_done_callback(lambda future: received.put((job, future)))

        client.subscribe_topic(batch, lambda event: received.put(event[1]))
        for job in jobs:
            submit(job)
        while running:
            item = received.get()
            if isinstance(item, dict):
                if item["job"] in running:
                    yield Event(running[item["job"]][0])
                continue
            job, future = item
            error = future.exception() if future.status == "error" else None
            if future.status == "finished":
                outcome = Outcome(**future.result())
            elif error and not isinstance(error, KilledWorker):  # no npuconv there, or a full disk
                text = " ".join(f"{type(error).__name__}: {error}".split())
                outcome = Outcome("failed", f"its worker could not run it: {text}")
            elif client.status not in ("running", "connecting"):
                outcome = Outcome("lost", "the connection to the scheduler was lost")
            elif submissions[job.name] < _MAX_SUBMISSIONS:
                submit(job)
                continue
            else:
                outcome = Outcome("lost", "its workers died again and again; given up")
            del running[job.name]
            yield Event(job, outcome=outcome)
        if client.status == "running":
            client.set_metadata(batch, {})


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


def _connect(address: str) -> Any:
    """Return a client, a context manager whose end cancels all tasks."""
    from distributed import Client

    try:
        return Client(address, timeout=_CONNECT_TIMEOUT, set_as_default=False)
    except (OSError, ValueError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UsageError(f"scheduler {address}: {text}") from None


def run_on_worker(request: dict[str, Any]) -> dict[str, Any]:
    """Run a job on a worker; return the fields of its outcome.

    ``request`` has the job, its root and threads, versions and key of the batch, as plain data.
    """
    from distributed import get_client, get_worker

    worker, client = get_worker(), get_client()
    versions, expected = tools(), request["tools"]
    different = [
        f"{name} {versions[name]}, not {expected[name]}"
        for name in versions
        if versions[name] != expected[name]
    ]
    if different:  # the worker would write other bytes
        return vars(Outcome("failed", f"worker {worker.address} has {'; '.join(different)}"))
    job = Job.model_validate(request["job"])
    key = [request["batch"], job.name]
    runs = client.get_metadata(key, 0)
    if runs >= _MAX_RUNS:
        return vars(Outcome("lost", f"{runs} workers died while they ran it; given up"))
    client.set_metadata(key, runs + 1)
    worker.log_event(request["batch"], {"job": job.name})
    task_key = worker.get_current_task()

    def is_wanted() -> bool:
        # Dask cannot stop a function when the client has gone or has cancelled the task.
        task = worker.state.tasks.get(task_key)
        return task is not None and task.state != "cancelled"

    outcome, root = Outcome("lost", "was cancelled"), Path(request["root"])
    for event in local.run([job], root, threads=request["threads"], is_wanted=is_wanted):
        outcome = event.outcome or outcome
    return vars(outcome)
