"""Archives of arrays: read row by row, when their turn comes, and written.

What was stored as it is, is read where it lies. What was compressed is read from front to
back; going back begins anew. No more than the rows asked for is held.
"""

from __future__ import annotations

import io
import lzma
import math
import struct
import sys
import threading
import tokenize
import weakref
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from npuconv import limits
from npuconv.data.samples import Array
from npuconv.errors import CalibrationError
from npuconv.limits import Limits

READ_BYTES = 2**18  # decompressed at once
PIECE_BYTES = 2**22  # of the rows that are checked at once
UNCHECKED_BYTES = 2**26  # of an array whose compression ratio may be anything
_LOCAL_HEADER = struct.Struct("<26xHH")  # of a member in the file: lengths of what follows
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file can say
_HEADER_VERSIONS = ((1, 0), (2, 0))  # later ones are for names of fields, which numbers lack
# All that numpy and zipfile are known to raise for an array file with a few bits changed.
UNREADABLE = (
    *(OSError, OverflowError, ValueError, EOFError, LookupError, MemoryError, RuntimeError),
    *(TypeError, AttributeError, SyntaxError, tokenize.TokenError, struct.error),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)


class Archive(Mapping[str, Any]):
    """The arrays of an .npz by name; opened when looked up.

    The file stays open as long as one of the arrays is in use. Without ``allowed``, the limits in
    force hold.

    Raises:
        CalibrationError: it cannot be read, or is no archive.
    """

    def __init__(self, file: Path, allowed: Limits | None = None) -> None:
        self.file, self.lock = file, threading.Lock()
        self._allowed = allowed or limits.present()
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
        """Return an array; in memory only if its rows do not follow each other in the file.

        Raises:
            CalibrationError: it is damaged, or holds Python objects.
        """
        member = self._names[name]
        with explained(self.file), self.lock, self.open(member) as stream:
            header = _read_header(stream)
            _check_size(name, header, self._zip.getinfo(member).file_size)
            self._check_ratio(name, self._zip.getinfo(member))
            if header.by_rows:
                return Streamed(self, member, header)
        with explained(self.file), self.lock, self.open(member) as stream:
            return npy.read_array(stream, allow_pickle=False)

    def _check_ratio(self, name: str, info: zipfile.ZipInfo) -> None:
        """Refuse an array far larger than the file, which would be read for a very long time."""
        size, allowed = info.file_size, self._allowed
        where = f"{self.file}: array {name!r}"
        if size > allowed.archive_bytes:
            text = f"{where} has {size} bytes, over {allowed.archive_bytes}"
            raise CalibrationError(text, hint=limits.hint("archive_bytes"))
        if size > UNCHECKED_BYTES and size > allowed.archive_ratio * max(info.compress_size, 1):
            ratio = size // max(info.compress_size, 1)
            text = f"{where} is {ratio} times as large as in the file, over {allowed.archive_ratio}"
            raise CalibrationError(text, hint=limits.hint("archive_ratio"))

    def open(self, member: str) -> IO[bytes]:
        """Open a member at its first byte; its checksum is tested after its last."""
        return self._zip.open(member)

    def place(self, member: str) -> int | None:
        """Return the offset in the file of a member's bytes; None if they are compressed."""
        info = self._zip.getinfo(member)
        if info.compress_type != zipfile.ZIP_STORED:
            return None
        self.stream.seek(info.header_offset)
        lengths = _LOCAL_HEADER.unpack(self.stream.read(_LOCAL_HEADER.size))
        return info.header_offset + _LOCAL_HEADER.size + sum(lengths)


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
        """Read a row, or several that follow each other.

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
        """Yield all rows, some at a time, checked against the sum that the archive keeps.

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
    return max(PIECE_BYTES // max(row, 1), 1)


class _Cursor:
    """Position in a stream that is read forwards."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.at = stream, 0

    def read(self, begin: int, buffer: memoryview) -> None:
        while self.at < begin:
            self.at += len(_some(self._stream, begin - self.at))
        _fill(self._stream, buffer)
        self.at += len(buffer)

    def end(self) -> None:
        """Reach the end of the stream, where zipfile checks the sum."""
        self._stream.read(1)


def _fill(stream: IO[bytes], buffer: memoryview) -> None:
    done = 0
    while done < len(buffer):
        part = _some(stream, len(buffer) - done)
        buffer[done : done + len(part)] = part
        done += len(part)


def _some(stream: IO[bytes], wanted: int) -> bytes:
    part = stream.read(min(wanted, READ_BYTES))
    if not part:
        raise ValueError("it ends before the last row")
    return part


def _bytes_of(rows: Array) -> memoryview:
    return rows.reshape(-1).view(np.uint8).data


def _read_header(stream: IO[bytes]) -> Header:
    version = npy.read_magic(stream)
    if version not in _HEADER_VERSIONS:
        return Header((), np.dtype(np.void), by_rows=False, start=0)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, by_columns, dtype = read(stream)
    if any(not 0 <= length <= sys.maxsize for length in shape):
        raise ValueError(f"an array cannot have the shape {list(shape)}")
    return Header(shape, dtype, bool(shape) and not by_columns, stream.tell())


def _check_size(name: str, header: Header, there: int) -> None:
    """Refuse a header that promises more values than the file holds."""
    if header.dtype.hasobject:
        raise ValueError("Object arrays")
    wanted = header.start + header.dtype.itemsize * math.prod(header.shape)
    if wanted > there:
        raise ValueError(
            f"{name!r} of shape {list(header.shape)} takes {wanted} bytes, {there} are there"
        )


@contextmanager
def explained(file: Path) -> Iterator[None]:
    """Turn any error of reading into a one-line CalibrationError about the file.

    Raises:
        CalibrationError: the file cannot be read.
    """
    try:
        yield
    except UNREADABLE as error:
        raise CalibrationError(f"{file}: {_cause(error)}") from None


def _cause(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, EOFError):
        return "the file is empty" if str(error) else "damaged: it ends too early"
    if isinstance(error, MemoryError):
        return "larger than the memory"
    if "Object arrays" in str(error) or "Python objects" in str(error):  # mapped or not
        return "an array of Python objects, which are not read: are all samples of one shape?"
    if "encrypted" in str(error):
        return "encrypted, which is not read"
    if "pickle" in str(error):
        return "is not a valid .npz or .npy file"
    return f"damaged: {error}"


def npz(arrays: Mapping[str, Array]) -> bytes:
    """Return what ``np.savez_compressed`` writes, but always the same bytes for the same arrays."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, array in sorted(arrays.items()):
            part = io.BytesIO()
            npy.write_array(part, np.ascontiguousarray(array).reshape(array.shape))
            entry = zipfile.ZipInfo(f"{key}.npy", _EPOCH)
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3  # on any system
            archive.writestr(entry, part.getvalue())
    return stream.getvalue()
