"""Archives of arrays: read array by array, checked before anything is decompressed, and written.

A large array is mapped: in the archive if it is stored uncompressed there, else in a temporary
file that it is decompressed into.
"""

from __future__ import annotations

import io
import lzma
import math
import shutil
import struct
import sys
import tempfile
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
from numpy.lib import format as npy

from npuconv import limits
from npuconv.data.samples import Array
from npuconv.errors import CalibrationError
from npuconv.limits import Limits

HELD_BYTES = 2**22  # largest array that is held in memory
UNCHECKED_BYTES = 2**26  # largest array whose compression ratio may be anything
_PIECE = 2**20  # bytes that are checked at once
_LOCAL_HEADER = struct.Struct("<26xHH")  # header of a member: lengths of its name and extra field
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest date of a zip file
_HEADER_VERSIONS = ((1, 0), (2, 0))  # later versions are for structured arrays
# All that numpy and zipfile are known to raise for an array file with a few bits changed.
UNREADABLE = (
    *(OSError, OverflowError, ValueError, EOFError, LookupError, MemoryError, RuntimeError),
    *(TypeError, AttributeError, SyntaxError, tokenize.TokenError, struct.error),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError),
)


class _Header(NamedTuple):
    """Shape and type of an array, and the offset of its values in its member."""

    shape: tuple[int, ...]
    by_columns: bool
    dtype: np.dtype[Any]
    start: int


class Archive(Mapping[str, Array]):
    """The arrays of an .npz by name, each read when it is looked up.

    Without ``allowed``, the limits in force hold.

    Raises:
        CalibrationError: the file cannot be read, or is not an archive.
    """

    def __init__(self, file: Path, allowed: Limits | None = None) -> None:
        self.file, self._allowed = file, allowed or limits.present()
        with explained(file), zipfile.ZipFile(file) as members:
            self._names = {name.removesuffix(".npy"): name for name in members.namelist()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, name: str) -> Array:
        """Return an array whose checksum is right.

        Raises:
            CalibrationError: it is damaged, holds Python objects, or is far larger than the file.
        """
        member = self._names[name]
        with explained(self.file), zipfile.ZipFile(self.file) as members:
            info = members.getinfo(member)
            header = self._header(name, members, info)
            if header is None or info.file_size <= HELD_BYTES:
                with members.open(info) as stream:
                    array = npy.read_array(stream, allow_pickle=False)
                    stream.read(1)  # zipfile tests the checksum at the end of the member
                    return array
            order: Literal["C", "F"] = "F" if header.by_columns else "C"
            if info.compress_type != zipfile.ZIP_STORED:
                with members.open(info) as stream, tempfile.TemporaryFile() as scratch:
                    shutil.copyfileobj(stream, scratch)
                    return np.memmap(scratch, header.dtype, "r", header.start, header.shape, order)
            with members.open(info) as stream:
                while stream.read(_PIECE):
                    pass
            with self.file.open("rb") as file:
                file.seek(info.header_offset)
                lengths = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
                start = file.tell() + sum(lengths) + header.start
                return np.memmap(file, header.dtype, "r", start, header.shape, order)

    def peek(self, name: str) -> Array:
        """Return zeros of the shape and the type of an array, which take no memory.

        Raises:
            CalibrationError: it is damaged.
        """
        with explained(self.file), zipfile.ZipFile(self.file) as members:
            header = self._header(name, members, members.getinfo(self._names[name]))
        if header is None:
            return self[name]
        return np.broadcast_to(np.zeros((), header.dtype), header.shape)

    def _header(self, name: str, members: zipfile.ZipFile, info: zipfile.ZipInfo) -> _Header | None:
        """Read the header of an array; None if only numpy can.

        Raises:
            CalibrationError: an array far larger than the file, or than it may be.
            ValueError: the header contradicts itself or the size of the member.
        """
        size, allowed = info.file_size, self._allowed
        where = f"{self.file}: array {name!r}"
        with members.open(info) as stream:
            header = _read_header(stream)
        if header is not None:
            if header.dtype.hasobject:
                raise ValueError("Object arrays")
            needed = header.start + header.dtype.itemsize * math.prod(header.shape)
            if needed > size:
                raise ValueError(
                    f"{name!r} of shape {list(header.shape)} takes {needed} bytes, {size} are there"
                )
        if size > allowed.archive_bytes:
            text = f"{where} has {size} bytes, over {allowed.archive_bytes}"
            raise CalibrationError(text, hint=limits.hint("archive_bytes"))
        if size > UNCHECKED_BYTES and size > allowed.archive_ratio * max(info.compress_size, 1):
            ratio = size // max(info.compress_size, 1)
            text = f"{where} is {ratio} times as large as in the file, over {allowed.archive_ratio}"
            raise CalibrationError(text, hint=limits.hint("archive_ratio"))
        return header


def _read_header(stream: IO[bytes]) -> _Header | None:
    version = npy.read_magic(stream)
    if version not in _HEADER_VERSIONS:
        return None
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, by_columns, dtype = read(stream)
    if any(not 0 <= length <= sys.maxsize for length in shape):
        raise ValueError(f"an array cannot have the shape {list(shape)}")
    return _Header(shape, by_columns, dtype, stream.tell())


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
    """Return an archive of arrays: the same bytes for the same arrays, unlike savez_compressed."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, array in sorted(arrays.items()):
            part = io.BytesIO()
            npy.write_array(part, np.ascontiguousarray(array).reshape(array.shape))
            entry = zipfile.ZipInfo(f"{key}.npy", _EPOCH)
            entry.compress_type, entry.create_system = zipfile.ZIP_DEFLATED, 3  # Unix
            archive.writestr(entry, part.getvalue())
    return stream.getvalue()
