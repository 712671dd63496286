"""Statistics on disk, so that the same samples are not run through the same model twice.

A file holds one part: the statistics of a few adjacent samples. Its name is a digest of all
that it depends on, and the file says so itself; what does not fit is ignored, never trusted.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from npuconv import files
from npuconv.arithmetic.statistics import Statistics, capacity
from npuconv.data.archives import UNREADABLE
from npuconv.data.samples import Feed
from npuconv.executor import RUNTIME
from npuconv.model import store
from npuconv.version import __version__

FORMAT = 4
_DIGITS = 32  # of a digest, in file names
Arrays = Mapping[str, NDArray[Any]]
_FLAT = {
    **dict.fromkeys(("lows", "highs", "second_lows", "second_highs"), np.float32),
    **dict.fromkeys(("means", "squares"), np.float64),
}
_OF_SAMPLES = ("numbers", "widths")
_LENGTHS = ("channels", "positions", "kept", "counts")  # int64, one for each tensor


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
        self.folder = files.make_folder(folder)
        self.notes: list[str] = []

    def store(
        self, model: onnx.ModelProto, tensors: Mapping[str, int | None], total: int | None
    ) -> PartStore:
        """Return the stored parts of this model and these tensors.

        ``tensors`` gives channel axes by name; ``total``, the number of samples, is None if not
        known.
        """
        asked = [FORMAT, __version__, RUNTIME, list(tensors.items()), total]
        digest = hashlib.sha256(store.digest(model))
        digest.update(json.dumps(asked).encode())
        return PartStore(self, digest.hexdigest(), dict(tensors))


@dataclass(frozen=True)
class Stored:
    """A part in a file."""

    path: Path
    prints: list[str]  # fingerprints of its samples
    batch: int  # how many samples were run together
    found: dict[str, Statistics] = field(repr=False)  # statistics by tensor


class PartStore:
    """The stored parts of one model and its tensors."""

    def __init__(self, cache: Cache, key: str, tensors: dict[str, int | None]) -> None:
        self._cache, self._key, self._tensors = cache, key, tensors

    def parts_from(self, first: int) -> list[Stored]:
        """Return the stored parts that begin with this sample."""
        pattern = f"{self._key[:_DIGITS]}-{first:06d}-*.npz"
        stored = map(self._read, sorted(self._cache.folder.glob(pattern)))
        return [part for part in stored if part is not None]

    def put(self, found: Mapping[str, Statistics], prints: Sequence[str], batch: int) -> None:
        """Store a part.

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
        """Read a part; None, with a note, if the file is not one."""
        try:
            with path.open("rb") as stream:
                if not zipfile.is_zipfile(stream):
                    raise ValueError("it is no archive")
                stream.seek(0)
                with np.load(stream, allow_pickle=False) as archive:
                    arrays = {name: archive[name] for name in archive.files}
            if any(arrays[key].dtype.kind != "S" for key in ("key", "prints")):
                raise ValueError("its names are no text")
            prints = [text.decode() for text in arrays["prints"].tolist()]
            statistics = unpack(arrays, self._tensors)
            part = next(iter(statistics.values()))
            batch = int(arrays["batch"].item())
            fits = [
                arrays["key"].tolist() == [self._key.encode()],
                path.name == self._name(part.first, prints),
                part.samples == len(prints),
                batch > 0,
            ]
            if not all(fits):
                raise ValueError("it is not what its name says")
            return Stored(path, prints, batch, statistics)
        except UNREADABLE as error:
            self._cache.notes.append(f"{path.name} in the cache is ignored: {error}")
            return None


def fingerprint(feed: Feed) -> str:
    """Return a digest of a sample: names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, array in sorted(feed.items()):
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def pack(found: Mapping[str, Statistics]) -> dict[str, NDArray[Any]]:
    """Pack statistics of the same samples into a few arrays by name."""
    all_of = list(found.values())
    flat = (*_FLAT, *_OF_SAMPLES)
    arrays = {key: np.concatenate([getattr(s, key) for s in all_of]) for key in flat}
    arrays["values"] = np.concatenate([s.values.ravel() for s in all_of])
    rows = [(s.channels, s.values.shape[1], s.numbers.size, s.count) for s in all_of]
    arrays |= dict(zip(_LENGTHS, np.asarray(rows, np.int64).T, strict=True))
    arrays["samples"] = np.asarray([all_of[0].first, all_of[0].samples], np.int64)
    return arrays


def unpack(arrays: Arrays, tensors: Mapping[str, int | None]) -> dict[str, Statistics]:
    """Return the statistics that ``pack`` made the arrays from.

    The arrays are not to be trusted. ``tensors`` gives channel axes by name, in the order in which
    they were packed.

    Raises:
        ValueError: they are not of these tensors, or not statistics.
    """
    for key, kind in {**_FLAT, "values": np.float32}.items():
        _check(arrays[key].dtype == kind and arrays[key].ndim == 1, key)
    for key in (*_LENGTHS, *_OF_SAMPLES, "samples"):
        _check(arrays[key].dtype == np.int64 and arrays[key].ndim == 1, key)
        _check(bool((arrays[key] >= 0).all()), key)
    _check(all(arrays[key].size == len(tensors) for key in _LENGTHS), "tensors")
    _check(arrays["samples"].size == 2, "samples")
    statistics = {part.name: part for part in _cut(arrays, tensors)}
    # The size of every array is the sum over its tensors.
    channels = int(arrays["channels"].sum())
    _check(all(arrays[key].size == channels for key in _FLAT), "channels")
    values = int((arrays["channels"] * arrays["positions"]).sum())
    _check(arrays["values"].size == values, "values")
    _check(all(arrays[key].size == int(arrays["kept"].sum()) for key in _OF_SAMPLES), "kept")
    return statistics


def _cut(arrays: Arrays, tensors: Mapping[str, int | None]) -> Iterator[Statistics]:
    first, samples = arrays["samples"].tolist()
    rows = zip(*(arrays[key].tolist() for key in _LENGTHS), strict=True)
    channel = value = number = 0
    for (name, axis), (channels, positions, kept, count) in zip(tensors.items(), rows, strict=True):
        own = slice(channel, channel + channels)
        size = channels * positions
        of_samples = slice(number, number + kept)
        _check(positions <= capacity(channels), "values")
        part = Statistics(
            name=name, axis=axis, samples=samples, count=count, first=first,
            values=arrays["values"][value : value + size].reshape(channels, positions),
            **{key: arrays[key][own] for key in _FLAT},
            **{key: arrays[key][of_samples] for key in _OF_SAMPLES},
        )  # fmt: skip
        seconds = (part.second_lows, part.second_highs)
        numbers = (part.lows, part.highs, *seconds, part.means, part.squares, part.values)
        _check(all(bool(np.isfinite(array).all()) for array in numbers), "finite")
        _check(bool((part.lows <= part.highs).all()), "extremes")
        _check(int(part.widths.sum()) == part.values.shape[1], "widths")
        inside = (part.numbers >= first) & (part.numbers < first + samples)
        _check(bool(inside.all()), "numbers")
        yield part
        channel, value, number = channel + channels, value + size, number + kept


def _check(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"{what} are not what they should be")
