"""Weights of a model that is too large to be held: they stay in files, and are mapped.

Graphs and protos hold views of the files instead, so that a model of gigabytes is copied,
run and written in the memory of its largest layers. What passes make anew goes into files
of our own, in a folder that is removed with the store; the next process that needs such a
folder removes what a killed one has left.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import math
import os
import tempfile
import threading
import weakref
from collections.abc import Iterable, Set
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from npuconv import files
from npuconv.errors import OutputError

Array = NDArray[Any]
LARGE = 256 * 2**20  # bytes of a model; its tensors beyond the next are not held
TENSOR = 2**20  # bytes; what is smaller is held anyway
INLINE = 1_900_000_000  # bytes of weights that one protobuf of 2 GB surely holds
ROOT = os.sep  # what locations in protos are relative to
_PLAIN = "biuf"  # kinds of numpy types whose bytes are those of ONNX
_SEGMENT = 64 * 2**20  # bytes of a file of ours; each costs a file handle
_MMAP_THRESHOLD = -3  # number of the option in malloc.h
_ALIGNED = 64  # bytes: a line of the cache, and the widest vectors
_stores: weakref.WeakSet[Store] = weakref.WeakSet()


class Store:
    """Memory-mapped files with the large tensors of one model."""

    def __init__(self) -> None:
        self._maps: list[tuple[int, int, files.MappedFile]] = []  # first and last address
        self._by_path: dict[Path, files.MappedFile] = {}
        self._folder: Path | None = None
        self._end = self._size = 0  # of what is used of the last file of ours, and of it
        self._last = Path()
        _give_back()
        self._lock = threading.RLock()  # layers are solved side by side
        _stores.add(self)

    @property
    def paths(self) -> Set[Path]:
        """The files that it has mapped."""
        return self._by_path.keys()

    def view(self, path: str | Path, offset: int, dtype: Any, shape: Iterable[int]) -> Array:
        """An array that lies in a file; read only.

        Args:
            path: the file; not to be changed while it is used.
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
        """The values of an initializer that lies in a file."""
        path, offset, size = _place(tensor)
        files.count_mapped(size)
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        return self.view(path, offset, dtype, tensor.dims)

    def keep(self, array: Array) -> Array:
        """The same array in a file, if it is worth it.

        Raises:
            OutputError: there is no room for it.
        """
        if array.nbytes < TENSOR or array.dtype.kind not in _PLAIN or self._where(array):
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
        """An initializer that says where the array is; None for one that is in memory."""
        place = self._where(array)
        if place is None:
            return None
        code = helper.np_dtype_to_tensor_dtype(array.dtype)
        return reference(name, code, array.shape, place[0], place[1], array.nbytes)

    def _where(self, array: Array) -> tuple[Path, int] | None:
        """File and offset of an array, if it lies in one in the way that ONNX reads it."""
        first = array.__array_interface__["data"][0]
        if not array.flags.c_contiguous or not array.flags.aligned:
            return None
        for start, end, one in self._maps:
            if start <= first and first + array.nbytes <= end:
                return one.path, first - start
        return None

    def _map(self, path: Path, length: int = 0) -> None:
        one = files.MappedFile(path, length)
        self._by_path[path] = one
        start = np.frombuffer(one.memory, np.uint8).__array_interface__["data"][0]
        self._maps.append((start, start + len(one.memory), one))

    def _write(self, array: Array) -> tuple[Path, int]:
        """Append an array to the files of ours."""
        start = -(-self._end // _ALIGNED) * _ALIGNED
        if start + array.nbytes > self._size:
            start = self._add_file(array.nbytes)
        with self._last.open("r+b") as stream:
            stream.seek(start)
            stream.write(array.reshape(-1).view(np.uint8).data)
        self._end = start + array.nbytes
        return self._last, start

    def _add_file(self, least: int) -> int:
        if self._folder is None:
            self._folder = files.temporary_folder(self)
        self._last = self._folder / str(len(self._by_path))
        self._size = max(least, _SEGMENT)
        with self._last.open("xb") as stream:
            stream.truncate(self._size)  # takes no room on the disk yet
        self._map(self._last)
        return 0


def reference(
    name: str, code: int, dims: Iterable[int], path: Path, offset: int, size: int
) -> onnx.TensorProto:
    """An initializer whose bytes lie in a file."""
    made = onnx.TensorProto(name=name, data_type=code, dims=dims)
    made.data_location = onnx.TensorProto.EXTERNAL
    place = {"location": os.path.relpath(path, ROOT), "offset": str(offset), "length": str(size)}
    for key, text in place.items():
        made.external_data.add(key=key, value=text)
    return made


def is_stored(tensor: onnx.TensorProto) -> bool:
    """Return whether the bytes of an initializer are in a file."""
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


def has_stored(proto: onnx.ModelProto) -> bool:
    """Return whether any of the model's weights are in files."""
    return any(map(is_stored, proto.graph.initializer))


@cache
def _give_back() -> None:
    """Let the C library return what is freed of large arrays to the system at once.

    glibc learns to keep blocks of up to 32 MB for itself, which are many copies of a layer.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, TENSOR)


def initializer(name: str, array: Array) -> onnx.TensorProto:
    """The array as an initializer, by reference where it lies in a file."""
    if array.nbytes >= TENSOR:
        for one in list(_stores):
            if (found := one.tensor(name, array)) is not None:
                return found
    return numpy_helper.from_array(array, name)


def of(proto: onnx.ModelProto) -> Store | None:
    """The store that holds weights of the model; None where they are all in memory."""
    paths = {_place(t)[0] for t in proto.graph.initializer if is_stored(t)}
    return next((s for s in list(_stores) if paths & s.paths), None) if paths else None


def array(tensor: onnx.TensorProto) -> Array:
    """The values of an initializer, wherever they are. Never write into the array."""
    if not is_stored(tensor):
        return numpy_helper.to_array(tensor)
    path = _place(tensor)[0]
    return (next((s for s in list(_stores) if path in s.paths), None) or Store()).open(tensor)


def _place(tensor: onnx.TensorProto) -> tuple[Path, int, int]:
    """File, offset and length."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    path = Path(ROOT, entries["location"])
    return path, int(entries.get("offset", 0)), int(entries.get("length", 0))


def size(proto: onnx.ModelProto) -> int:
    """Bytes of all initializers."""
    return sum(
        _place(t)[2] if is_stored(t) else len(t.raw_data) or t.ByteSize()
        for t in proto.graph.initializer
    )


def digest(proto: onnx.ModelProto) -> bytes:
    """Return the SHA-256 digest of the whole model, weights in files included."""
    found, light = hashlib.sha256(), proto
    if has_stored(proto):
        light = onnx.ModelProto()
        light.CopyFrom(proto)
        for tensor in filter(is_stored, light.graph.initializer):
            found.update(array(tensor).data)
            del tensor.external_data[:]
    found.update(light.SerializeToString(deterministic=True))
    return found.digest()


def whole(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model with all its weights in it, if one file can hold them."""
    if not has_stored(proto) or size(proto) > INLINE:
        return proto
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    for tensor in filter(is_stored, made.graph.initializer):
        values = array(tensor)
        del tensor.external_data[:]
        tensor.ClearField("data_location")
        tensor.raw_data = values.tobytes()
    return made
