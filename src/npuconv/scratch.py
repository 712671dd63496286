"""Folders for what a process writes for itself; what a killed process left of them goes."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref
from pathlib import Path

from npuconv import files

_KIND = "npuconv-weights"


def folder(owner: object) -> Path:
    """Return a new folder below TMPDIR; it goes with its owner, or with the process.

    Raises:
        OSError: it cannot be made.
    """
    home = Path(tempfile.gettempdir())
    for old in sorted(home.glob(f"{_KIND}-*-*")):
        with contextlib.suppress(OSError, ValueError):
            _remove_if_left(old)
    made = Path(tempfile.mkdtemp(prefix=f"{_KIND}-{os.getpid()}-", dir=home))
    handle = os.open(made, os.O_RDONLY)
    files.hold(handle)  # until it is closed, which the end of the process does as well
    weakref.finalize(owner, _remove, made, handle)
    return made


def _remove(made: Path, handle: int) -> None:
    shutil.rmtree(made, ignore_errors=True)
    os.close(handle)


def _remove_if_left(old: Path) -> None:
    if old.stat().st_uid != os.getuid() or files.is_alive(int(old.name.split("-")[2])):
        return
    handle = os.open(old, os.O_RDONLY)
    try:
        if files.hold(handle, wait=False):  # nor is it of a process of another container
            shutil.rmtree(old, ignore_errors=True)
    finally:
        os.close(handle)
