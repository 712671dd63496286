"""Jobs on a worker of a cluster, and the files that are sent to it and back.

A worker runs a job in a child process, as this machine does. Paths stay as they are in the jobs
file, so that a report is the same on every machine; absolute paths can therefore not be shipped.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from npuconv.batch import local
from npuconv.batch.job import Job, Outcome, Place, from_json
from npuconv.batch.lock import NAMES_A_FILE, data_files, external_files, tools
from npuconv.errors import UsageError
from npuconv.target import builtin_names

Parcel = dict[str, bytes]  # path relative to the root of the jobs -> content

ATTEMPTS = 2  # a job whose workers died so often is given up
_FOLDER = "npuconv"  # in the folder of the worker
_PARTS = ".npuconv-calibration"  # folder of the files that blocks of a calibration write
_COUNTER_TIMEOUT = "30 s"


def do(request: dict[str, Any], *parcels: Mapping[str, bytes]) -> dict[str, Any]:
    """Run one job on a worker.

    Args:
        request: job, place, versions, and names of counter and topic, as plain data.
        parcels: the files it needs, where none are shared, and those of calibrated blocks.

    Returns:
        The outcome, and the files it has written where none are shared.
    """
    from distributed import get_worker

    worker = get_worker()
    objection = _versions(request["tools"], worker.address) or _count(request["counter"])
    if objection is not None:
        return {"outcome": vars(objection), "files": {}}
    job = from_json(Job, request["job"])
    worker.log_event(request["topic"], {"kind": "started", "job": job.name})
    with _place(request, parcels, worker) as place:
        outcome = _run(job, place, worker)
        written = outcome.files if request["ship"] else ()
        found = {path: (place.root / path).read_bytes() for path in written}
        return {"outcome": vars(outcome), "files": found}


def calibrate(
    request: dict[str, Any], block: tuple[int, int], *parcels: Mapping[str, bytes]
) -> Parcel:
    """Run a block of a job's calibration on a worker, before the job itself.

    The job calibrates what is missing, so that it also reports errors.

    ``block`` is its number, and how many there are; the others are as of ``do``.

    Returns:
        The files it has written, where none are shared.
    """
    from distributed import get_worker

    worker = get_worker()
    with contextlib.suppress(OSError):
        if _versions(request["tools"], worker.address) or _count(request["counter"]):
            return {}
        job = replace(from_json(Job, request["job"]), block=block)
        worker.log_event(request["topic"], {"kind": "calibrates", "job": job.name})
        with _place(request, parcels, worker) as place:
            _run(job, place, worker)
            worker.log_event(request["topic"], {"kind": "calibrated", "job": job.name})
            return _calibrated_parts(place.root) if request["ship"] else {}
    return {}


@contextlib.contextmanager
def _place(
    request: dict[str, Any], parcels: Iterable[Mapping[str, bytes]], worker: Any
) -> Iterator[Place]:
    """Provide the folder of a job within a with statement: the shared one, or a temporary one."""
    shared = from_json(Place, request["place"])
    if not request["ship"]:
        yield shared
        return
    home = Path(worker.local_directory) / _FOLDER
    home.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=home))
    try:
        root = unpack(parcels, folder)
        parts = shared.parts and root / _PARTS
        yield Place(root, home / "cache", shared.threads, parts)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _LastOutcome(local.Watcher):
    """Watcher that keeps the outcome of one job."""

    def __init__(self) -> None:
        self.outcome = Outcome("lost", "nobody wanted it any more")

    def finished(self, job: Job, outcome: Outcome) -> None:
        """Keep the outcome."""
        del job
        self.outcome = outcome


def _run(job: Job, place: Place, worker: Any) -> Outcome:
    last, key = _LastOutcome(), worker.get_current_task()

    def wanted() -> bool:
        # Dask cannot stop a function when the client has gone or has cancelled the task.
        task = worker.state.tasks.get(key)
        return task is not None and task.state != "cancelled"

    local.run([job], place, last, wanted=wanted)
    return last.outcome


def _versions(wanted: dict[str, str], address: str) -> Outcome | None:
    """Return a failure if the worker has other versions, which would write other bytes."""
    here = tools()
    differ = [
        f"{name} {here[name]}, not {wanted[name]}" for name in here if here[name] != wanted[name]
    ]
    if not differ:
        return None
    return Outcome("failed", f"worker {address} has {'; '.join(differ)}")


def _count(name: str) -> Outcome | None:
    """Count an attempt at a job; return a failure if too many before it have lost their worker."""
    from distributed import Variable

    counter = Variable(name)
    before = int(counter.get(timeout=_COUNTER_TIMEOUT))
    if before >= ATTEMPTS:
        return Outcome("lost", f"{before} workers died while they ran it; given up")
    counter.set(before + 1)
    return None


def pack(paths: Iterable[str], root: Path) -> Parcel:
    """Read files to send; one that is missing is left out, and the job reports it.

    Raises:
        UsageError: a path is absolute.
    """
    found: Parcel = {}
    for path in paths:
        if Path(path).is_absolute():
            raise UsageError(
                f"{path}: an absolute path means another file on another machine",
                hint="write it relative to the jobs file, or leave out --ship",
            )
        if (root / path).is_file():
            found[path] = (root / path).read_bytes()
    return found


def needs(job: Job, root: Path) -> list[list[str]]:
    """Return the files of a job: model, target, and each set of files that its options name."""
    model = root / job.model
    sets = [[job.model, *_beside(job.model, model, external_files(model))]]
    if job.options.target not in builtin_names():
        sets.append([job.options.target])
    for key in NAMES_A_FILE:
        name = getattr(job.options, key, None)
        if name:
            sets.append(_beside(name, root / name, data_files(root / name)))
    return sets


def _calibrated_parts(root: Path) -> Parcel:
    """Return the files that blocks of a calibration write, for the worker that runs the job."""
    found = sorted((root / _PARTS).glob("*.npz"))
    return {f"{_PARTS}/{path.name}": path.read_bytes() for path in found}


def unpack(parcels: Iterable[Mapping[str, bytes]], folder: Path) -> Path:
    """Write files below a folder; ``..`` in their paths does not leave it.

    Returns:
        The folder that their paths are relative to.
    """
    whole = {path: data for parcel in parcels for path, data in parcel.items()}
    depth = max((PurePosixPath(path).parts.count("..") for path in whole), default=0)
    root = folder.joinpath(*["root"] * (depth + 1))
    root.mkdir(parents=True, exist_ok=True)
    for path, data in whole.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return root


def _beside(name: str, path: Path, files: Iterable[Path]) -> list[str]:
    """Return files beside or in a named path, named in the same way."""
    given = PurePosixPath(Path(name).as_posix())
    found = []
    for file in files:
        if file.is_relative_to(path):
            found.append(str(given / file.relative_to(path).as_posix()))
        elif file.is_relative_to(path.parent):
            found.append(str(given.parent / file.relative_to(path.parent).as_posix()))
        else:
            found.append(str(file))
    return found
