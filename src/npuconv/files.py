"""Files appear whole or not at all: written beside their destination, then renamed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

from npuconv.errors import OutputError

_written: ContextVar[list[Path] | None] = ContextVar("written", default=None)


@contextlib.contextmanager
def noted() -> Iterator[list[Path]]:
    """What is written from here on, in this thread: complete files, in order."""
    found: list[Path] = []
    token = _written.set(found)
    try:
        yield found
    finally:
        _written.reset(token)


def write(path: str | Path, data: bytes | str) -> None:
    """Write a file so that a reader sees the old content or the new, never a part.

    Args:
        path: destination; its folder must exist.
        data: bytes, or text (UTF-8).

    Raises:
        OutputError: the folder is missing or not writable, the disk is full, ...
    """
    target = Path(path)
    content = data.encode() if isinstance(data, str) else data
    check_writable(target)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(target)
        _note(target)
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _note(path: Path) -> None:
    found = _written.get()
    if found is not None and path not in found:
        found.append(path)


def check_writable(path: str | Path) -> None:
    """Refuse a destination before any work is done for it.

    Raises:
        OutputError: the folder does not exist or is not writable, or it is a directory.
    """
    target = Path(path)
    try:
        taken, home = target.is_dir(), target.parent.is_dir()
    except OSError as error:  # a folder above that may not be entered, a name too long
        raise OutputError(f"{path}: cannot be written: {error.strerror}") from None
    if taken:
        raise OutputError(f"{path}: is a directory; give a file name")
    if not home:
        raise OutputError(f"{path}: the folder {str(target.parent)!r} does not exist")
    if not os.access(target.parent, os.W_OK):
        raise OutputError(f"{path}: the folder {str(target.parent)!r} is not writable")
