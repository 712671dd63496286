"""Arrays of an .npz that are read row by row, when their turn comes.

What was stored as it is, is read where it lies. What was compressed is read from front to
back; going back begins anew. No more than the rows asked for is held.
"""

from __future__ import annotations

import math
import struct
import sys
import threading
import weakref
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from npuconv import limits
from npuconv.errors import CalibrationError
from npuconv.limits import Limits
from npuconv.samples.damage import explained
from npuconv.samples.feeds import Array

# Bytes decompressed at once, and bytes of rows looked at at once.
_STEP, _PIECE = 2**18, 2**22
_HARMLESS = 2**26  # bytes that may be as well compressed as they like
_LOCAL = struct.Struct("<26xHH")  # of a member's header in the file: lengths of what follows
_PLAIN = ((1, 0), (2, 0))  # later headers are for names of fields, which numbers have not


class Archive(Mapping[str, Any]):
    """The arrays of an .npz by name; opened when looked up.

    Args:
        file: it stays open as long as one of the arrays is in use.
        most: what it may hold; those in force where None.

    Raises:
        CalibrationError: it cannot be read, or is no archive.
    """

    def __init__(self, file: Path, most: Limits | None = None) -> None:
        self.file, self.lock = file, threading.Lock()
        self._most = most or limits.present()
        with explained(file):
            self.stream = file.open("rb")
            weakref.finalize(self, self.stream.close)
            self._zip = zipfile.ZipFile(self.stream)
            self._names = {name.removesuffix(".npy"): name for name in self._zip.namelist()}

    def __iter__(self) -> Iterator[str]:
        """Names, without suffix."""
        return iter(self._names)

    def __len__(self) -> int:
        """Return the number of arrays."""
        return len(self._names)

    def __getitem__(self, name: str) -> Array | Streamed:
        """An array; in memory only if its rows do not follow each other in the file.

        Raises:
            CalibrationError: it is damaged, or holds Python objects.
        """
        member = self._names[name]
        with explained(self.file), self.lock, self.open(member) as stream:
            header = _read_header(stream)
            _check_size(name, header, self._zip.getinfo(member).file_size)
            self._check_swelling(name, self._zip.getinfo(member))
            if header.by_rows:
                return Streamed(self, member, header)
        with explained(self.file), self.lock, self.open(member) as stream:
            return npy.read_array(stream, allow_pickle=False)

    def _check_swelling(self, name: str, info: zipfile.ZipInfo) -> None:
        """An array that is far larger than the file is read for a very long time."""
        size, most = info.file_size, self._most
        where = f"{self.file}: array {name!r}"
        if size > most.archive_bytes:
            text = f"{where} has {size} bytes, over {most.archive_bytes}"
            raise CalibrationError(text, hint=limits.hint("archive_bytes"))
        if size > _HARMLESS and size > most.archive_ratio * max(info.compress_size, 1):
            ratio = size // max(info.compress_size, 1)
            text = f"{where} is {ratio} times as large as in the file, over {most.archive_ratio}"
            raise CalibrationError(text, hint=limits.hint("archive_ratio"))

    def open(self, member: str) -> IO[bytes]:
        """A member from its first byte, checked when it has been read to its last."""
        return self._zip.open(member)

    def place(self, member: str) -> int | None:
        """Return the offset in the file of a member's bytes; None if they are compressed."""
        info = self._zip.getinfo(member)
        if info.compress_type != zipfile.ZIP_STORED:
            return None
        self.stream.seek(info.header_offset)
        lengths = _LOCAL.unpack(self.stream.read(_LOCAL.size))
        return info.header_offset + _LOCAL.size + sum(lengths)


@dataclass(frozen=True)
class Header:
    """Shape and type of an array, and where in its member its values begin."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_rows: bool
    start: int


class Streamed:
    """An array whose rows are read when asked for, as often as asked for.

    Attributes:
        shape: as an array's; so are dtype, ndim and size.
    """

    def __init__(self, archive: Archive, member: str, header: Header) -> None:
        self.shape, self.dtype = header.shape, header.dtype
        self.ndim, self.size = len(self.shape), math.prod(self.shape)
        self._archive, self._member, self._start = archive, member, header.start
        self._row = self.dtype.itemsize * math.prod(self.shape[1:])
        self._place = archive.place(member)
        self._cursor: _Cursor | None = None

    def __len__(self) -> int:
        """Number of rows."""
        return self.shape[0]

    def __getitem__(self, item: int | slice) -> Array:
        """A row, or several that follow each other.

        Raises:
            CalibrationError: the file cannot be read any more.
        """
        if isinstance(item, int):
            return self[item : item + 1][0]
        first, last, _ = item.indices(len(self))
        with explained(self._archive.file), self._archive.lock:
            rows = self._empty(max(last - first, 0))
            self._read(self._start + first * self._row, rows)
        return rows

    def pieces(self) -> Iterator[Array]:
        """All rows, some at a time, checked against the sum that the archive keeps.

        Raises:
            CalibrationError: the array is damaged.
        """
        step = rows_at_once(self)
        with explained(self._archive.file):
            with self._archive.lock:
                cursor = _Cursor(self._archive.open(self._member))
            for first in range(0, len(self), step):
                rows = self._empty(min(step, len(self) - first))
                with self._archive.lock:
                    cursor.read(self._start + first * self._row, _bytes_of(rows))
                yield rows
            with self._archive.lock:
                cursor.end()

    def _empty(self, rows: int) -> Array:
        return np.empty((rows, *self.shape[1:]), self.dtype)

    def _read(self, begin: int, rows: Array) -> None:
        buffer = _bytes_of(rows)
        if self._place is not None:
            self._archive.stream.seek(self._place + begin)
            return _fill(self._archive.stream, buffer)
        cursor, self._cursor = self._cursor, None  # after an error it is of no use
        if cursor is None or cursor.at > begin:
            cursor = _Cursor(self._archive.open(self._member))
        cursor.read(begin, buffer)
        self._cursor = cursor
        return None


Rows = Array | Streamed


def rows_at_once(array: Rows) -> int:
    """Return the number of rows to process together: memory stays bounded."""
    row = array.dtype.itemsize * math.prod(array.shape[1:])
    return max(_PIECE // max(row, 1), 1)


class _Cursor:
    """Reads a stream forwards."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.at = stream, 0

    def read(self, begin: int, buffer: memoryview) -> None:
        while self.at < begin:
            self.at += len(_some(self._stream, begin - self.at))
        _fill(self._stream, buffer)
        self.at += len(buffer)

    def end(self) -> None:
        """The sum is only checked where the stream is seen to end."""
        self._stream.read(1)


def _fill(stream: IO[bytes], buffer: memoryview) -> None:
    done = 0
    while done < len(buffer):
        part = _some(stream, len(buffer) - done)
        buffer[done : done + len(part)] = part
        done += len(part)


def _some(stream: IO[bytes], wanted: int) -> bytes:
    part = stream.read(min(wanted, _STEP))
    if not part:
        raise ValueError("it ends before the last row")
    return part


def _bytes_of(rows: Array) -> memoryview:
    return rows.reshape(-1).view(np.uint8).data


def _read_header(stream: IO[bytes]) -> Header:
    version = npy.read_magic(stream)
    if version not in _PLAIN:
        return Header((), np.dtype(np.void), by_rows=False, start=0)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, by_columns, dtype = read(stream)
    if any(not 0 <= length <= sys.maxsize for length in shape):
        raise ValueError(f"an array cannot have the shape {list(shape)}")
    return Header(shape, dtype, bool(shape) and not by_columns, stream.tell())


def _check_size(name: str, header: Header, there: int) -> None:
    """A header that promises more than there is would cost memory, or time, for nothing."""
    if header.dtype.hasobject:
        raise ValueError("Object arrays")
    wanted = header.start + header.dtype.itemsize * math.prod(header.shape)
    if wanted > there:
        raise ValueError(
            f"{name!r} of shape {list(header.shape)} takes {wanted} bytes, {there} are there"
        )
