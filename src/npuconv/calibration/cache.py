"""Statistics on disk, so that the same samples are not run through the same model twice.

A file holds one part: what was seen of a few adjacent samples. Its name is a digest of all
that it depends on, and the file says so itself; what does not fit is ignored, never trusted.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from npuconv import files
from npuconv.arithmetic.statistics import Statistics
from npuconv.calibration.packed import pack, unpack
from npuconv.errors import OutputError
from npuconv.executor import RUNTIME
from npuconv.model import store
from npuconv.samples.damage import UNREADABLE
from npuconv.samples.feeds import Feed
from npuconv.version import __version__

FORMAT = 4
_DIGITS = 32  # of a digest, in file names


class Cache:
    """A folder of statistics.

    Args:
        folder: made where it is missing.

    Attributes:
        notes: files that were ignored, and why.

    Raises:
        OutputError: the folder cannot be made.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.notes: list[str] = []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OutputError(f"{folder}: cannot be made: {error.strerror}") from None

    def shelf(
        self, model: onnx.ModelProto, tensors: Mapping[str, int | None], total: int | None
    ) -> Shelf:
        """Return the shelf of the parts for this model and these tensors.

        Args:
            model: the float model.
            tensors: name -> channel axis.
            total: number of samples, None where it is not known.
        """
        asked = [FORMAT, __version__, RUNTIME, list(tensors.items()), total]
        digest = hashlib.sha256(store.digest(model))
        digest.update(json.dumps(asked).encode())
        return Shelf(self, digest.hexdigest(), dict(tensors))


@dataclass(frozen=True)
class Stored:
    """A part in a file.

    Attributes:
        path: the file.
        prints: fingerprints of its samples.
        batch: how many samples were run together.
        found: what was seen.
    """

    path: Path
    prints: list[str]
    batch: int
    found: dict[str, Statistics] = field(repr=False)


class Shelf:
    """The parts of one model and its tensors."""

    def __init__(self, cache: Cache, key: str, tensors: dict[str, int | None]) -> None:
        self._cache, self._key, self._tensors = cache, key, tensors

    def parts_from(self, first: int) -> list[Stored]:
        """The stored parts that begin with this sample."""
        pattern = f"{self._key[:_DIGITS]}-{first:06d}-*.npz"
        stored = map(self._read, sorted(self._cache.folder.glob(pattern)))
        return [part for part in stored if part is not None]

    def put(self, found: Mapping[str, Statistics], prints: Sequence[str], batch: int) -> None:
        """Keep a part.

        Raises:
            OutputError: it cannot be written.
        """
        first = next(iter(found.values())).first
        about = {
            "key": np.asarray([self._key], "S64"),
            "prints": np.asarray(prints, "S64"),
            "batch": np.asarray([batch], np.int64),
        }
        stream = io.BytesIO()
        np.savez(stream, allow_pickle=False, **about, **pack(found))
        files.write(self._cache.folder / self._name(first, prints), stream.getvalue())

    def _name(self, first: int, prints: Sequence[str]) -> str:
        digest = hashlib.sha256("".join(prints).encode()).hexdigest()
        return f"{self._key[:_DIGITS]}-{first:06d}-{digest[:_DIGITS]}.npz"

    def _read(self, path: Path) -> Stored | None:
        try:
            return self._checked(path, _load(path))
        except UNREADABLE as error:
            self._cache.notes.append(f"{path.name} in the cache is ignored: {error}")
            return None

    def _checked(self, path: Path, arrays: dict[str, np.ndarray]) -> Stored:
        if any(arrays[key].dtype.kind != "S" for key in ("key", "prints")):
            raise ValueError("its names are no text")
        prints = [each.decode() for each in arrays["prints"].tolist()]
        found = unpack(arrays, self._tensors)
        part = next(iter(found.values()))
        batch = int(arrays["batch"].item())
        fits = [
            arrays["key"].tolist() == [self._key.encode()],
            path.name == self._name(part.first, prints),
            part.samples == len(prints),
            batch > 0,
        ]
        if not all(fits):
            raise ValueError("it is not what its name says")
        return Stored(path, prints, batch, found)


def _load(path: Path) -> dict[str, np.ndarray]:
    with path.open("rb") as stream:
        if not zipfile.is_zipfile(stream):
            raise ValueError("it is no archive")
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}


def fingerprint(feed: Feed) -> str:
    """A digest of a sample: names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, array in sorted(feed.items()):
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
