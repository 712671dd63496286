"""Jobs on a worker of a cluster: run in a child process, as on this machine."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from distributed import Variable, get_worker

from npuconv.batch import local, shipping
from npuconv.batch.book import Silent
from npuconv.batch.digests import tools
from npuconv.batch.job import Job, Outcome, Place

ATTEMPTS = 2  # a job whose workers died so often is given up
_FOLDER = "npuconv"  # in the worker's own


def do(request: dict[str, Any], *parcels: Mapping[str, bytes]) -> dict[str, Any]:
    """Run one job on a worker.

    Args:
        request: the job, the place, and how to count attempts, as plain data.
        parcels: the files it needs, where none are shared, and what was calibrated before.

    Returns:
        The outcome, and the files it has made where none are shared.
    """
    worker = get_worker()
    objection = _versions(request["tools"], worker.address) or _count(request["counter"])
    if objection is not None:
        return {"outcome": vars(objection), "files": {}}
    job = Job.from_json(request["job"])
    worker.log_event(request["topic"], {"kind": "started", "job": job.name})
    with _place(request, parcels, worker) as place:
        outcome = _run(job, place, worker)
        made = outcome.files if request["ship"] else ()
        found = {path: (place.root / path).read_bytes() for path in made}
        return {"outcome": vars(outcome), "files": found}


def calibrate(
    request: dict[str, Any], block: tuple[int, int], *parcels: Mapping[str, bytes]
) -> shipping.Parcel:
    """Run a block of a job's calibration on a worker, before the job itself.

    Whatever is not made here the job makes, so it also says what went wrong.

    Args:
        request: as of ``do``.
        block: its number, and how many there are.
        parcels: as of ``do``.

    Returns:
        What was made, where no files are shared.
    """
    worker = get_worker()
    with contextlib.suppress(OSError):
        if _versions(request["tools"], worker.address) or _count(request["counter"]):
            return {}
        job = replace(Job.from_json(request["job"]), block=block)
        worker.log_event(request["topic"], {"kind": "calibrates", "job": job.name})
        with _place(request, parcels, worker) as place:
            _run(job, place, worker)
            worker.log_event(request["topic"], {"kind": "calibrated", "job": job.name})
            return shipping.made_parts(place.root) if request["ship"] else {}
    return {}


@contextlib.contextmanager
def _place(
    request: dict[str, Any], parcels: Iterable[Mapping[str, bytes]], worker: Any
) -> Iterator[Place]:
    """Provide the folder of a job within a with statement: the shared one, or a temporary one."""
    shared = Place.from_json(request["place"])
    if not request["ship"]:
        yield shared
        return
    home = Path(worker.local_directory) / _FOLDER
    home.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=home))
    try:
        root = shipping.unpack(parcels, folder)
        parts = shared.parts and root / shipping.PARTS
        yield Place(root, home / "cache", shared.threads, parts)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Last(Silent):
    """Keeps the outcome."""

    def __init__(self) -> None:
        self.outcome = Outcome("lost", "nobody wanted it any more")

    def finished(self, job: Job, outcome: Outcome) -> None:
        """Keep it."""
        del job
        self.outcome = outcome


def _run(job: Job, place: Place, worker: Any) -> Outcome:
    last, key = _Last(), worker.get_current_task()

    def wanted() -> bool:
        # The client has gone or has cancelled it: Dask cannot stop a function, this can.
        task = worker.state.tasks.get(key)
        return task is not None and task.state != "cancelled"

    local.run([job], place, last, wanted=wanted)
    return last.outcome


def _versions(wanted: dict[str, str], address: str) -> Outcome | None:
    """The same job must give the same bytes on every worker."""
    here = tools()
    differ = [
        f"{name} {here[name]}, not {wanted[name]}" for name in here if here[name] != wanted[name]
    ]
    if not differ:
        return None
    return Outcome("failed", f"worker {address} has {'; '.join(differ)}")


def _count(name: str) -> Outcome | None:
    """Count the attempts at a job: each that is not the first has lost its worker."""
    counter = Variable(name)
    before = int(counter.get(timeout="30 s"))
    if before >= ATTEMPTS:
        return Outcome("lost", f"{before} workers died while they ran it; given up")
    counter.set(before + 1)
    return None
