"""Weights of a large model: they stay in files, which are memory-mapped.

Graphs and protos hold views of the files, so that a model of gigabytes is copied, run and
written in the memory of its largest layers. New weights go into scratch files, in a folder
that is removed with the store. A file of a large model is parsed without its large tensors:
a parsed message cannot free the memory of one field.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Set
from functools import cache
from mmap import mmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from npuconv import files
from npuconv.errors import OutputError

Array = NDArray[Any]
LARGE_MODEL = 256 * 2**20  # bytes of a model whose large tensors stay in files
LARGE_TENSOR = 2**20  # bytes of such a tensor; smaller ones are held in memory
MAX_INLINE = 1_900_000_000  # bytes of weights that fit into one protobuf of 2 GB
ROOT = os.sep  # the folder that locations in protos are relative to
_PLAIN_KINDS = "biuf"  # of numpy types whose bytes are those of ONNX
_SCRATCH_FILE = 64 * 2**20  # bytes of a scratch file; each costs a file handle
_MMAP_THRESHOLD = -3  # number of the option in malloc.h
_ALIGNMENT = 64  # bytes: a cache line, and the widest vectors
# Field numbers in onnx.proto: ModelProto.graph, GraphProto.initializer, TensorProto.raw_data.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # wire types of protobuf
_stores: weakref.WeakSet[Store] = weakref.WeakSet()


class Store:
    """Memory-mapped files with the large tensors of one model."""

    def __init__(self) -> None:
        self._maps: list[tuple[int, int, files.MappedFile]] = []  # first and last address
        self._by_path: dict[Path, files.MappedFile] = {}
        self._folder: Path | None = None
        self._end = self._size = 0  # bytes used, and all bytes, of the last scratch file
        self._last = Path()
        _return_freed_memory()
        self._lock = threading.RLock()  # layers are solved in parallel
        _stores.add(self)

    @property
    def paths(self) -> Set[Path]:
        """Mapped files."""
        return self._by_path.keys()

    def view(self, path: str | Path, offset: int, dtype: Any, shape: Iterable[int]) -> Array:
        """Return a read-only array that lies in a file.

        Args:
            path: the file, which must not change meanwhile.
            offset: of the first byte.
            dtype: a type whose bytes are the same in a file of ONNX.
            shape: of the array.
        """
        place, dims = Path(path).absolute(), tuple(shape)
        with self._lock:
            if place not in self._by_path:
                self._map(place)
        memory = self._by_path[place].memory
        return np.frombuffer(memory, dtype, math.prod(dims), offset).reshape(dims)

    def open(self, tensor: onnx.TensorProto) -> Array:
        """Return the values of an initializer that lies in a file."""
        path, offset, size = _place(tensor)
        files.count_mapped(size)
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        return self.view(path, offset, dtype, tensor.dims)

    def keep(self, array: Array) -> Array:
        """Return the same array in a file; a small one as it is.

        Raises:
            OutputError: the folder for temporary files is full or not writable.
        """
        if (
            array.nbytes < LARGE_TENSOR
            or array.dtype.kind not in _PLAIN_KINDS
            or self._where(array)
        ):
            return array
        try:
            with self._lock:
                path, offset = self._write(np.ascontiguousarray(array))
        except OSError as error:
            place = self._folder or tempfile.gettempdir()
            text = f"{place}: cannot be written: {error.strerror}"
            hint = "weights of large models are kept there; TMPDIR says where"
            raise OutputError(text, hint=hint) from None
        return self.view(path, offset, array.dtype, array.shape)

    def tensor(self, name: str, array: Array) -> onnx.TensorProto | None:
        """Return an initializer that refers to the array's file; None for one in memory."""
        if (place := self._where(array)) is None:
            return None
        code = helper.np_dtype_to_tensor_dtype(array.dtype)
        return reference(name, code, array.shape, *place, array.nbytes)

    def _where(self, array: Array) -> tuple[Path, int] | None:
        """Return file and offset of an array that lies in a file in ONNX's order, else None."""
        first = array.__array_interface__["data"][0]
        if not array.flags.c_contiguous or not array.flags.aligned:
            return None
        for start, end, mapped in self._maps:
            if start <= first and first + array.nbytes <= end:
                return mapped.path, first - start
        return None

    def _map(self, path: Path, length: int = 0) -> None:
        mapped = files.MappedFile(path, length)
        self._by_path[path] = mapped
        start = np.frombuffer(mapped.memory, np.uint8).__array_interface__["data"][0]
        self._maps.append((start, start + len(mapped.memory), mapped))

    def _write(self, array: Array) -> tuple[Path, int]:
        """Append an array to the scratch files."""
        start = -(-self._end // _ALIGNMENT) * _ALIGNMENT
        if start + array.nbytes > self._size:
            start = self._add_file(array.nbytes)
        with self._last.open("r+b") as stream:
            stream.seek(start)
            stream.write(array.reshape(-1).view(np.uint8).data)
        self._end = start + array.nbytes
        return self._last, start

    def _add_file(self, size: int) -> int:
        if self._folder is None:
            self._folder = files.temporary_folder(self)
        self._last = self._folder / str(len(self._by_path))
        self._size = max(size, _SCRATCH_FILE)
        with self._last.open("xb") as stream:
            stream.truncate(self._size)  # takes no room on the disk yet
        self._map(self._last)
        return 0


def reference(
    name: str, code: int, dims: Iterable[int], path: Path, offset: int, size: int
) -> onnx.TensorProto:
    """Return an initializer whose bytes lie in a file."""
    tensor = onnx.TensorProto(name=name, data_type=code, dims=dims)
    tensor.data_location = onnx.TensorProto.EXTERNAL
    place = {"location": os.path.relpath(path, ROOT), "offset": str(offset), "length": str(size)}
    for key, text in place.items():
        tensor.external_data.add(key=key, value=text)
    return tensor


def is_stored(tensor: onnx.TensorProto) -> bool:
    """Return whether the bytes of an initializer are in a file."""
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


def has_stored(proto: onnx.ModelProto) -> bool:
    """Return whether any of the model's weights are in files."""
    return any(map(is_stored, proto.graph.initializer))


@cache
def _return_freed_memory() -> None:
    """Let the C library return freed memory of large arrays to the system at once.

    glibc would keep freed blocks of up to 32 MB, which are many copies of a layer.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, LARGE_TENSOR)


def initializer(name: str, array: Array) -> onnx.TensorProto:
    """Return the array as an initializer, by reference if it lies in a file."""
    if array.nbytes >= LARGE_TENSOR:
        for store in list(_stores):
            if (found := store.tensor(name, array)) is not None:
                return found
    return numpy_helper.from_array(array, name)


def of(proto: onnx.ModelProto) -> Store | None:
    """Return the store that holds weights of the model; None if all are in memory."""
    paths = {_place(t)[0] for t in proto.graph.initializer if is_stored(t)}
    return next((s for s in list(_stores) if paths & s.paths), None) if paths else None


def array(tensor: onnx.TensorProto) -> Array:
    """Return the values of an initializer, in memory or a file. Never write into the array."""
    if not is_stored(tensor):
        return numpy_helper.to_array(tensor)
    path = _place(tensor)[0]
    return (next((s for s in list(_stores) if path in s.paths), None) or Store()).open(tensor)


def _place(tensor: onnx.TensorProto) -> tuple[Path, int, int]:
    """Return file, offset and length."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    path = Path(ROOT, entries["location"])
    return path, int(entries.get("offset", 0)), int(entries.get("length", 0))


def size(proto: onnx.ModelProto) -> int:
    """Return the bytes of all initializers."""
    return sum(
        _place(t)[2] if is_stored(t) else len(t.raw_data) or t.ByteSize()
        for t in proto.graph.initializer
    )


def whole(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with all its weights in it, if one file can hold them."""
    if not has_stored(proto) or size(proto) > MAX_INLINE:
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for tensor in filter(is_stored, copy.graph.initializer):
        values = array(tensor)
        del tensor.external_data[:]
        tensor.ClearField("data_location")
        tensor.raw_data = values.tobytes()
    return copy


class _Field(NamedTuple):
    number: int
    start: int  # of its tag
    value: int  # first byte
    end: int


def without_large_tensors(data: mmap, path: Path) -> bytes:
    """Return a serialized model whose large initializers are references to their file.

    Initializers that numpy cannot view in place stay, for the parser to read or refuse.

    Raises:
        ValueError: the bytes are no protobuf message.
    """
    return _rewritten(data, 0, len(data), path, (_GRAPH, _INITIALIZER))


def _rewritten(data: mmap, start: int, end: int, path: Path, inner: tuple[int, ...]) -> bytes:
    """Return a message without the tensors below its nested fields of numbers ``inner``."""
    pieces, copied = [], start
    for field in _fields(data, start, end):
        if field.number != inner[0] or field.end - field.value < LARGE_TENSOR:
            continue
        if len(inner) > 1:
            replacement = _rewritten(data, field.value, field.end, path, inner[1:])
        else:
            replacement = _own_reference(data, field, path)
        if replacement:
            pieces += [data[copied : field.start], _varint(inner[0] << 3 | _BYTES)]
            pieces += [_varint(len(replacement)), replacement]
            copied = field.end
    return b"".join([*pieces, data[copied:end]])


def _own_reference(data: mmap, field: _Field, path: Path) -> bytes:
    """Return a reference to an initializer; no bytes if it must stay."""
    raw_fields = [f for f in _fields(data, field.value, field.end) if f.number == _RAW_DATA]
    if len(raw_fields) != 1:
        return b""
    raw = raw_fields[0]
    size = raw.end - raw.value
    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(data[field.value : raw.start] + data[raw.end : field.end])
    except DecodeError:
        return b""
    if tensor.data_location or not can_map(tensor, size):
        return b""
    made = reference(tensor.name, tensor.data_type, tensor.dims, path, raw.value, size)
    return bytes(made.SerializeToString(deterministic=True))


def can_map(tensor: onnx.TensorProto, size: int) -> bool:
    """Return whether a tensor is large, has ``size`` bytes, and numpy can view them in place."""
    if min(tensor.dims, default=0) < 0 or size < LARGE_TENSOR:
        return False
    try:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
    except (KeyError, TypeError):
        return False
    same = helper.np_dtype_to_tensor_dtype(dtype) == tensor.data_type
    return same and dtype.kind in _PLAIN_KINDS and math.prod(tensor.dims) * dtype.itemsize == size


def _fields(data: mmap, start: int, end: int) -> Iterator[_Field]:
    position = start
    while position < end:
        tag, value = _read_varint(data, position, end)
        kind = tag & 7
        if kind == _VARINT:
            stop = _read_varint(data, value, end)[1]
        elif kind == _BYTES:
            size, value = _read_varint(data, value, end)
            stop = value + size
        elif kind in (_EIGHT, _FOUR):
            stop = value + (8 if kind == _EIGHT else 4)
        else:
            raise ValueError("no such wire type")
        if stop > end:
            raise ValueError("a field is longer than its message")
        yield _Field(tag >> 3, position, value, stop)
        position = stop


def _read_varint(data: mmap, position: int, end: int) -> tuple[int, int]:
    number = shift = 0
    while position < end and shift < 64:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
    raise ValueError("a number without an end")


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
