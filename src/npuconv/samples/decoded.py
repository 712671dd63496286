"""Images that have been decoded and scaled once, so that other models need not do it again.

A file holds the pixels of one image; its name is a digest of the image file and of how it
was scaled. Mean, standard deviation and layout come later, so models that differ in those
share it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import PIL
from numpy.typing import NDArray

from npuconv import files
from npuconv.errors import OutputError
from npuconv.samples.damage import UNREADABLE

Pixels = NDArray[np.uint8]  # [H,W] or [H,W,C]

FORMAT = 1
_shared: str | Path | None = None  # folder where a conversion names none
_FOLDER = "images"


def keep_in(folder: str | Path) -> None:
    """Keep decoded images in this folder from now on, where a conversion names none.

    For processes that convert one of many models on the same images.
    """
    global _shared
    _shared = folder


def shared() -> str | Path | None:
    """The folder that ``keep_in`` was told."""
    return _shared


class Decoded:
    """A folder of decoded images.

    Args:
        folder: made where it is missing; the cache of a conversion.
        how: what the pixels depend on besides the file, as plain data.

    Raises:
        OutputError: the folder cannot be made.
    """

    def __init__(self, folder: str | Path, how: object) -> None:
        self._folder = Path(folder) / _FOLDER
        self._how = json.dumps([FORMAT, PIL.__version__, how]).encode()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{folder}: cannot be made: {error.strerror}") from None

    def get(self, file: Path, decode: Callable[[], Pixels]) -> Pixels:
        """The pixels of an image file; decoded by one process, though many may ask at once.

        Raises:
            OSError: the image cannot be read.
            OutputError: the cache cannot be written.
        """
        digest = hashlib.sha256(self._how)
        digest.update(file.read_bytes())
        path = self._folder / f"{digest.hexdigest()[:40]}.npy"
        found = _read(path)
        if found is not None:
            return found
        with _alone(self._folder / f"{path.stem[:2]}.lock"):
            found = _read(path)
            if found is None:
                found = decode()
                _write(path, found)
            return found


def _read(path: Path) -> Pixels | None:
    try:
        found = np.load(path, allow_pickle=False)
    except UNREADABLE:
        return None
    return found if isinstance(found, np.ndarray) and found.dtype == np.uint8 else None


def _write(path: Path, pixels: Pixels) -> None:
    stream = io.BytesIO()
    np.save(stream, pixels, allow_pickle=False)
    files.write(path, stream.getvalue())


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """One process at a time; the system lets go of the lock of one that dies."""
    try:
        import fcntl
    except ImportError:  # not on this system: an image may be decoded twice, no more
        yield
        return
    with path.open("ab") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
