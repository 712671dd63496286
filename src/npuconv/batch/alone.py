"""One batch at a time in a folder of results: two would write the same files."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import psutil

from npuconv.errors import OutputError

NAME = ".npuconv-batch"
_NEAR = 5.0  # seconds between two ideas of when a process began: clocks are put right


@contextlib.contextmanager
def alone(folder: Path, shown: str) -> Iterator[None]:
    """Lock a folder against other batches within a with statement.

    The lock of a process of this machine that has ended is taken over.

    Args:
        folder: of the results; made where it is missing.
        shown: name of the folder in error messages.

    Raises:
        OutputError: another batch has it, or it cannot be written.
    """
    path = folder / NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"{shown}: cannot be made: {error.strerror}") from None
    try:
        while not _take(path, shown):
            pass
    except OSError as error:
        raise OutputError(f"{shown}: cannot be written: {error.strerror}") from None
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _take(path: Path, shown: str) -> bool:
    """Write into the file who has the folder; False where the file was removed meanwhile."""
    with path.open("a+", encoding="utf-8") as stream, _locked(stream):
        if not _is_there(path, stream):
            return False
        stream.seek(0)
        holder = _read(stream.read())
        if holder is not None and _lives(holder):
            raise _taken(holder, shown)
        stream.truncate(0)
        json.dump(_own(), stream)
    return True


@contextlib.contextmanager
def _locked(stream: IO[str]) -> Iterator[None]:
    """Lock the file within a with statement; do without where files cannot be locked."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(stream, fcntl.LOCK_EX)
    yield
    stream.flush()


def _is_there(path: Path, stream: IO[str]) -> bool:
    try:
        return path.stat().st_ino == os.fstat(stream.fileno()).st_ino
    except FileNotFoundError:
        return False


def _own() -> dict[str, Any]:
    me = psutil.Process()
    return {"host": socket.gethostname(), "pid": me.pid, "began": me.create_time()}


def _read(text: str) -> dict[str, Any] | None:
    """Return the process that holds the folder; None where its entry is incomplete."""
    try:
        found = json.loads(text)
        return {"host": str(found["host"]), "pid": int(found["pid"]), "began": found["began"] + 0.0}
    except (ValueError, KeyError, TypeError):
        return None


def _lives(holder: dict[str, Any]) -> bool:
    """Return whether the holder still runs (same pid and start); True if that is not known."""
    if holder["host"] != socket.gethostname():  # nobody can tell from here
        return True
    try:
        process = psutil.Process(holder["pid"])
        over = process.status() == psutil.STATUS_ZOMBIE
        return not over and abs(process.create_time() - holder["began"]) < _NEAR
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def _taken(holder: dict[str, Any], shown: str) -> OutputError:
    here = holder["host"] == socket.gethostname()
    where = "" if here else f" on {holder['host']}"
    gone = "" if here else f"; if it is gone, delete {NAME} there"
    return OutputError(
        f"{shown}: another npuconv batch writes there (process {holder['pid']}{where})",
        hint=f"wait until it has ended, or give another output{gone}",
    )
