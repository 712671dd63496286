"""Journal of a run: the outcome of each job, and the lock of the folder of results."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import psutil

from npuconv.batch.job import Job, Outcome
from npuconv.batch.local import Watcher
from npuconv.batch.lock import Locks
from npuconv.errors import OutputError

LOCK_NAME = ".npuconv-batch"
# Seconds by which two readings of the start of one process may differ: clocks are adjusted.
_START_TOLERANCE = 5.0


class Journal(Watcher):
    """Watcher that keeps the outcome of each job and writes the lock of each finished one."""

    def __init__(self, root: Path, locks: Locks, watcher: Watcher) -> None:
        self._root, self._locks, self._watcher = root, locks, watcher
        self.outcomes: dict[str, Outcome] = {}

    def skipped(self, count: int) -> None:
        """Forward the event."""
        self._watcher.skipped(count)

    def started(self, job: Job) -> None:
        """Forward the event."""
        self._watcher.started(job)

    def stage(self, job: Job, stage: str, done: int, total: int) -> None:
        """Forward the event."""
        self._watcher.stage(job, stage, done, total)

    def finished(self, job: Job, outcome: Outcome) -> None:
        """Record the outcome, write the lock of the job, and forward the event."""
        remove_partial_files(self._root, [job])
        outcome = self._checked(job, outcome)
        if outcome.finished:
            self._remove_stale_model(job, outcome)
            self._locks.write(job, outcome)
        self.outcomes[job.name] = outcome
        self._watcher.finished(job, outcome)

    def _checked(self, job: Job, outcome: Outcome) -> Outcome:
        """Return a failure if the model was not the one whose digest the lock would have."""
        planned = self._locks.digests.model(job)["sha256"]
        if not outcome.finished or outcome.model_sha256 == planned:
            return outcome
        return Outcome("failed", f"{job.model}: was changed while the batch ran; run it again")

    def _remove_stale_model(self, job: Job, outcome: Outcome) -> None:
        """Remove the model of an earlier run if this one wrote none: its report would not fit."""
        if job.output in outcome.files:
            return
        earlier = self._locks.read(job)
        path = self._root / job.output
        if earlier and earlier["outputs"].get(path.name):
            path.unlink(missing_ok=True)


def remove_partial_files(root: Path, jobs: Iterable[Job]) -> None:
    """Remove incomplete files of jobs whose processes have ended."""
    for job in jobs:
        for file in job.files:
            path = root / file
            for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
                pid = part.name.split(".")[-2]
                if not (pid.isdigit() and psutil.pid_exists(int(pid))):
                    with contextlib.suppress(OSError):
                        part.unlink()


@contextlib.contextmanager
def directory_lock(folder: Path, shown: str) -> Iterator[None]:
    """Lock a folder against other batches within a with statement.

    The lock of a process of this machine that has ended is taken over.

    Raises:
        OutputError: another batch has it, or it cannot be written.
    """
    path = folder / LOCK_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{shown}: cannot be made: {error.strerror}") from None
    try:
        while not _acquire(path, shown):
            pass
    except OSError as error:
        raise OutputError(f"{shown}: cannot be written: {error.strerror}") from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _acquire(path: Path, shown: str) -> bool:
    """Write this process into the lock file; return False if the file was removed meanwhile."""
    with path.open("a+", encoding="utf-8") as stream, _locked(stream):
        try:
            if path.stat().st_ino != os.fstat(stream.fileno()).st_ino:
                return False
        except FileNotFoundError:
            return False
        stream.seek(0)
        holder = _parse_holder(stream.read())
        if holder is not None and _is_running(holder):
            raise _held_error(holder, shown)
        stream.truncate(0)
        me = psutil.Process()
        own = {"host": socket.gethostname(), "pid": me.pid, "began": me.create_time()}
        json.dump(own, stream)
    return True


@contextlib.contextmanager
def _locked(stream: IO[str]) -> Iterator[None]:
    """Lock the file within a with statement; do without where files cannot be locked."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(stream, fcntl.LOCK_EX)
    yield
    stream.flush()


def _parse_holder(text: str) -> dict[str, Any] | None:
    """Return the process that holds the folder; None where its entry is incomplete."""
    try:
        found = json.loads(text)
        return {"host": str(found["host"]), "pid": int(found["pid"]), "began": found["began"] + 0.0}
    except (ValueError, KeyError, TypeError):
        return None


def _is_running(holder: dict[str, Any]) -> bool:
    """Return whether the holder still runs (same pid and start); True if that is not known."""
    if holder["host"] != socket.gethostname():  # not known on this machine
        return True
    try:
        process = psutil.Process(holder["pid"])
        ended = process.status() == psutil.STATUS_ZOMBIE
        return not ended and abs(process.create_time() - holder["began"]) < _START_TOLERANCE
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def _held_error(holder: dict[str, Any], shown: str) -> OutputError:
    here = holder["host"] == socket.gethostname()
    where = "" if here else f" on {holder['host']}"
    gone = "" if here else f"; if it is gone, delete {LOCK_NAME} there"
    return OutputError(
        f"{shown}: another npuconv batch writes there (process {holder['pid']}{where})",
        hint=f"wait until it has ended, or give another output{gone}",
    )
