"""Jobs on a Dask cluster.

A job is one task, which runs the job in a child process of the worker. If the worker dies, Dask
runs the task on another one. The number of runs is kept in the metadata of the scheduler, so that
a job whose workers keep dying is given up.

Every machine uses the paths of the jobs file, so that the reports are the same. Therefore
absolute paths cannot be shipped.
"""

from __future__ import annotations

import contextlib
import queue
import tempfile
import warnings
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from weakref import WeakValueDictionary

from npuconv import files
from npuconv.batch import local
from npuconv.batch.fingerprint import NAMES_A_FILE, data_files, external_files, tools
from npuconv.batch.job import Event, Job, JobFolders, Outcome, Settings, from_json, to_json
from npuconv.errors import UsageError
from npuconv.target import builtin_names

_CONNECT_TIMEOUT = "30 s"
_MAX_RUNS = 2  # number of runs of a job whose workers die
_MAX_SHIPPED = 64  # number of jobs whose files are on the scheduler at the same time
_MAX_SUBMISSIONS = 10  # number of submissions of a job: other jobs may have killed its workers
_FOLDER = "npuconv"  # folder of the jobs, in the folder of the worker


def run(
    jobs: Sequence[Job], folders: JobFolders, settings: Settings
) -> Generator[Event, None, None]:
    """Run jobs on the workers of a cluster and yield their events.

    The running jobs are ended when the caller closes the iterator.

    Raises:
        UsageError: Dask is not installed, the scheduler cannot be reached, or a path cannot
            be shipped.
    """
    require_dask()
    with _connect(settings) as client:
        yield from _ClusterRun(client, folders, settings.ship).events(jobs)


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
def _connect(settings: Settings) -> Iterator[Any]:
    """Provide a client within a with statement; its end cancels all tasks."""
    from distributed import Client, LocalCluster

    with contextlib.ExitStack() as stack:
        address: Any = settings.scheduler
        if settings.local_cluster:
            address = stack.enter_context(LocalCluster(
                n_workers=settings.local_cluster, threads_per_worker=1, host="127.0.0.1",
                dashboard_address="127.0.0.1:0", silence_logs="CRITICAL",
            ))  # fmt: skip
        try:
            client = Client(address, timeout=_CONNECT_TIMEOUT, set_as_default=False)
        except (OSError, ValueError) as error:
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UsageError(f"scheduler {address}: {text}") from None
        yield stack.enter_context(client)


class _ClusterRun:
    """Jobs submitted to a cluster."""

    def __init__(self, client: Any, folders: JobFolders, ship: bool) -> None:
        self._client, self._folders = client, folders
        self._batch = f"npuconv-{client.id}"  # metadata key of the run counts; topic of messages
        self._ship = ship
        # Pairs of a job and its completed future, and messages of workers.
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._running: dict[str, tuple[Job, list[Any]]] = {}  # job and its futures, by job name
        self._submissions: Counter[str] = Counter()  # number of submissions, by job name
        self._sets: dict[str, list[list[str]]] = {}  # paths of shipped files, by job name
        # Futures of files, by paths; the scheduler drops files that no running job needs.
        self._parcels: WeakValueDictionary[tuple[str, ...], Any] = WeakValueDictionary()

    def events(self, jobs: Sequence[Job]) -> Iterator[Event]:
        """Submit the jobs and yield their events until all have ended."""
        self._client.subscribe_topic(self._batch, lambda event: self._queue.put(event[1]))
        if self._ship:  # an absolute path is refused before any job runs
            self._sets = {job.name: required_files(job, self._folders.root) for job in jobs}
        pending = deque(jobs)
        limit = _MAX_SHIPPED if self._ship else len(jobs)
        while pending or self._running:
            while pending and len(self._running) < limit:
                self._submit(pending.popleft())
            item = self._queue.get()
            if isinstance(item, tuple):
                yield from self._complete(*item)
            elif item["job"] in self._running:
                yield Event(self._running[item["job"]][0])
        if self._client.status == "running":
            self._client.set_metadata(self._batch, {})

    def _submit(self, job: Job) -> None:
        self._submissions[job.name] += 1
        request = {
            "folders": to_json(self._folders),
            "tools": tools(),
            "batch": self._batch,
            "ship": self._ship,
            "job": to_json(job),
        }
        parcels = self._ship_files(job) if self._ship else []
        future = self._task(run_on_worker, request, *parcels)
        self._running[job.name] = job, [*parcels, future]
        future.add_done_callback(lambda future: self._queue.put((job, future)))

    def _task(self, function: Callable[..., Any], *arguments: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Sending large graph")  # shipped files are large
            return self._client.submit(function, *arguments, pure=False)

    def _ship_files(self, job: Job) -> list[Any]:
        """Submit the files of a job, each set of files once; return futures.

        They are results of tasks, which Dask runs again if their worker dies. Scattered data
        would be lost.
        """
        futures = []
        for paths in map(tuple, self._sets[job.name]):
            future = self._parcels.get(paths)
            if future is None or future.status not in ("pending", "finished"):
                future = self._task(dict, {"files": read_files(paths, self._folders.root)})
                self._parcels[paths] = future
            futures.append(future)
        return futures

    def _complete(self, job: Job, future: Any) -> Iterator[Event]:
        """Yield the end of a job, or submit it again if its workers died."""
        from distributed import KilledWorker

        error = future.exception() if future.status == "error" else None
        if future.status == "finished":
            result = future.result()
            for path, data in result["files"].items():
                files.write(self._folders.root / path, data)
            outcome = Outcome(**result["outcome"])
        elif error and not isinstance(error, KilledWorker):  # no npuconv there, or a full disk
            text = " ".join(f"{type(error).__name__}: {error}".split())
            outcome = Outcome("failed", f"its worker could not run it: {text}")
        elif self._client.status not in ("running", "connecting"):
            outcome = Outcome("lost", "the connection to the scheduler was lost")
        elif self._submissions[job.name] < _MAX_SUBMISSIONS:
            self._submit(job)
            return
        else:
            outcome = Outcome("lost", "its workers died again and again; given up")
        del self._running[job.name]
        yield Event(job, outcome=outcome)


def run_on_worker(request: dict[str, Any], *results: dict[str, Any]) -> dict[str, Any]:
    """Run a job on a worker.

    Args:
        request: job, folders, versions and key of the batch, as plain data.
        results: dictionaries with ``files``: the files of the job if they are shipped.

    Returns:
        ``outcome``, and the written ``files`` if they are shipped.
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
        outcome = Outcome("failed", f"worker {worker.address} has {'; '.join(different)}")
        return {"outcome": vars(outcome), "files": {}}
    job = from_json(Job, request["job"])
    key = [request["batch"], job.name]
    runs = client.get_metadata(key, 0)
    if runs >= _MAX_RUNS:
        outcome = Outcome("lost", f"{runs} workers died while they ran it; given up")
        return {"outcome": vars(outcome), "files": {}}
    client.set_metadata(key, runs + 1)
    worker.log_event(request["batch"], {"job": job.name})
    task_key = worker.get_current_task()

    def is_wanted() -> bool:
        # Dask cannot stop a function when the client has gone or has cancelled the task.
        task = worker.state.tasks.get(task_key)
        return task is not None and task.state != "cancelled"

    outcome, written = Outcome("lost", "was cancelled"), {}
    with contextlib.ExitStack() as stack:
        folders = from_json(JobFolders, request["folders"])
        if request["ship"]:  # shipped files go into a new folder; without them it is shared
            home = Path(worker.local_directory) / _FOLDER
            home.mkdir(exist_ok=True)
            folder = tempfile.TemporaryDirectory(dir=home, ignore_cleanup_errors=True)
            contents = {path: data for result in results for path, data in result["files"].items()}
            root = write_files(contents, Path(stack.enter_context(folder)))
            folders = JobFolders(root, home / "cache", folders.threads)
        for event in local.run([job], folders, is_wanted=is_wanted):
            outcome = event.outcome or outcome
        if request["ship"]:
            written = read_files(outcome.files, folders.root)
    return {"outcome": vars(outcome), "files": written}


def required_files(job: Job, root: Path) -> list[list[str]]:
    """Return the files of a job: model, target, and each set of files that its options name.

    Raises:
        UsageError: a path is absolute.
    """
    names = [] if job.options.target in builtin_names() else [job.options.target]
    names += [name for key in NAMES_A_FILE if (name := getattr(job.options, key))]
    sets = [[root / job.model, *external_files(root / job.model)]]
    sets += [data_files(root / name) for name in names]
    absolute = [name for name in (job.model, *names) if Path(name).is_absolute()]
    absolute += [str(path) for paths in sets for path in paths if not path.is_relative_to(root)]
    if absolute:
        raise UsageError(
            f"{absolute[0]}: an absolute path means another file on another machine",
            hint="write it relative to the jobs file, or leave out --ship",
        )
    return [[path.relative_to(root).as_posix() for path in paths] for paths in sets]


def read_files(paths: Iterable[str], root: Path) -> dict[str, bytes]:
    """Read files to send; a missing file is left out, and the job reports it."""
    return {path: (root / path).read_bytes() for path in paths if (root / path).is_file()}


def write_files(contents: Mapping[str, bytes], folder: Path) -> Path:
    """Write files below a folder; ``..`` in their paths does not leave it.

    Returns:
        The folder that their paths are relative to.
    """
    depth = max((PurePosixPath(path).parts.count("..") for path in contents), default=0)
    root = folder.joinpath(*["root"] * (depth + 1))
    root.mkdir(parents=True, exist_ok=True)
    for path, data in contents.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return root
