"""Weights of a large model: they stay in files, which are memory-mapped.

Graphs and protos hold views of the files, so that a model of gigabytes is copied, run and
written in the memory of its largest layers. New weights go into scratch files, in a folder
that is removed with the store.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable
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
LARGE_MODEL = 256 * 2**20  # least bytes of a model whose large tensors stay in files
LARGE_TENSOR = 2**20  # least bytes of such a tensor; smaller tensors are held in memory
MAX_INLINE = 1_900_000_000  # most bytes of weights that fit into one protobuf of 2 GB
ROOT = os.sep  # folder that locations in protos are relative to
PLAIN_KINDS = "biuf"  # kinds of numpy types whose bytes equal those of ONNX
_SCRATCH_FILE = 64 * 2**20  # bytes of a scratch file; each costs a file handle
_MMAP_THRESHOLD = -3  # number of the option in malloc.h
_ALIGNMENT = 64  # bytes: a cache line, and the widest vectors
_Key = tuple[Path, int, int]  # path, inode and size of a file
_mapped: weakref.WeakValueDictionary[_Key, files.MappedFile] = weakref.WeakValueDictionary()
_lock = threading.RLock()  # layers are solved in parallel


class Store:
    """Scratch files for the new weights of a large model."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._scratch: list[files.MappedFile] = []
        self._end = 0  # bytes used of the last scratch file
        _return_freed_memory()

    def keep(self, array: Array) -> Array:
        """Return the same array in a file; a small array is returned itself.

        Raises:
            OutputError: the folder for temporary files is full or not writable.
        """
        if array.nbytes < LARGE_TENSOR or array.dtype.kind not in PLAIN_KINDS or _place_of(array):
            return array
        try:
            with _lock:
                path, offset = self._write(np.ascontiguousarray(array))
        except OSError as error:
            folder = self._folder or tempfile.gettempdir()
            text = f"{folder}: cannot be written: {error.strerror}"
            hint = "weights of large models are kept there; TMPDIR says where"
            raise OutputError(text, hint=hint) from None
        return _view(path, offset, array.dtype, array.shape)

    def _write(self, array: Array) -> tuple[Path, int]:
        """Append an array to the scratch files; return its file and offset."""
        start = -(-self._end // _ALIGNMENT) * _ALIGNMENT
        if not self._scratch or start + array.nbytes > len(self._scratch[-1]):
            self._folder = self._folder or files.temporary_folder(self)
            path, start = self._folder / str(len(self._scratch)), 0
            with path.open("xb") as stream:  # the file takes no room on the disk yet
                stream.truncate(max(array.nbytes, _SCRATCH_FILE))
            self._scratch.append(_map(path))
        path = self._scratch[-1].path
        with path.open("r+b") as stream:
            stream.seek(start)
            stream.write(array.reshape(-1).view(np.uint8).data)
        self._end = start + array.nbytes
        return path, start


@cache
def _return_freed_memory() -> None:
    """Let the C library return freed memory of large arrays to the system at once.

    glibc would keep freed blocks of up to 32 MB, which are many copies of a layer.
    """
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, LARGE_TENSOR)


def _map(path: Path) -> files.MappedFile:
    """Map a file, once as long as an array lies in it."""
    stat = path.stat()
    key = (path, stat.st_ino, stat.st_size)
    with _lock:
        mapped = _mapped.get(key)
        if mapped is None:
            mapped = _mapped[key] = files.MappedFile.open(path)
        return mapped


def _view(path: Path, offset: int, dtype: Any, shape: Iterable[int]) -> Array:
    """Return a read-only array that lies in a file."""
    shape = tuple(shape)
    return np.frombuffer(_map(path), dtype, math.prod(shape), offset).reshape(shape)


def _place_of(array: Array) -> tuple[Path, int] | None:
    """Return file and offset of an array that lies in a file in ONNX's order, else None."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    base = base.obj if isinstance(base, memoryview) else base
    is_plain = array.flags.c_contiguous and array.flags.aligned
    if not isinstance(base, files.MappedFile) or not is_plain:
        return None
    start = np.frombuffer(base, np.uint8).__array_interface__["data"][0]
    return base.path, array.__array_interface__["data"][0] - start


# Initializers


def initializer(name: str, array: Array) -> onnx.TensorProto:
    """Return the array as an initializer, by reference if it is large and lies in a file."""
    place = _place_of(array) if array.nbytes >= LARGE_TENSOR else None
    if place is None:
        return numpy_helper.from_array(array, name)
    code = helper.np_dtype_to_tensor_dtype(array.dtype)
    return reference(name, code, array.shape, *place, array.nbytes)


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


def array(tensor: onnx.TensorProto) -> Array:
    """Return the values of an initializer, in memory or a file. Never write into the array."""
    if not is_stored(tensor):
        return numpy_helper.to_array(tensor)
    path, offset, size = _place(tensor)
    files.count_mapped(size)
    dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    return _view(path, offset, dtype, tensor.dims)


def _place(tensor: onnx.TensorProto) -> tuple[Path, int, int]:
    """Return file, offset and length of the bytes of a stored initializer."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    path = Path(ROOT, entries["location"])
    return path, int(entries.get("offset", 0)), int(entries.get("length", 0))


def size(proto: onnx.ModelProto) -> int:
    """Return the bytes of all initializers."""
    return sum(
        _place(t)[2] if is_stored(t) else len(t.raw_data) or t.ByteSize()
        for t in proto.graph.initializer
    )


def can_map(tensor: onnx.TensorProto, size: int) -> bool:
    """Return whether a tensor is large, has ``size`` bytes, and numpy can view them in place."""
    if min(tensor.dims, default=0) < 0 or size < LARGE_TENSOR:
        return False
    try:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
    except (KeyError, TypeError):
        return False
    is_native = helper.np_dtype_to_tensor_dtype(dtype) == tensor.data_type
    return (
        is_native and dtype.kind in PLAIN_KINDS and math.prod(tensor.dims) * dtype.itemsize == size
    )


# Models


def with_initializers(
    proto: onnx.ModelProto, convert: Callable[[onnx.TensorProto], onnx.TensorProto]
) -> onnx.ModelProto:
    """Return a copy of the model with converted initializers; the originals are not copied."""
    copy = without_initializers(proto)
    for tensor in proto.graph.initializer:
        copy.graph.initializer.append(convert(tensor))
    return copy


def without_initializers(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of the model without its initializers, which are not copied."""
    copy = onnx.ModelProto()
    _copy_fields(proto, copy, "graph")
    _copy_fields(proto.graph, copy.graph, "initializer")
    return copy


def _copy_fields(source: Any, into: Any, excluded: str) -> None:
    for field, value in source.ListFields():
        if field.name == excluded:
            continue
        if field.type == field.TYPE_MESSAGE or hasattr(value, "extend"):
            getattr(into, field.name).MergeFrom(value)
        else:
            setattr(into, field.name, value)


def without_large_tensors(proto: onnx.ModelProto, store: Store) -> onnx.ModelProto:
    """Return the model with its large initializers in files of the store."""

    def moved(tensor: onnx.TensorProto) -> onnx.TensorProto:
        if is_stored(tensor) or not can_map(tensor, len(tensor.raw_data)):
            return tensor
        return initializer(tensor.name, store.keep(numpy_helper.to_array(tensor)))

    return with_initializers(proto, moved)


def whole(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with all its weights in it, if one file can hold them."""
    if not has_stored(proto) or size(proto) > MAX_INLINE:
        return proto

    def embedded(tensor: onnx.TensorProto) -> onnx.TensorProto:
        if not is_stored(tensor):
            return tensor
        copy = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        copy.raw_data = array(tensor).tobytes()
        return copy

    return with_initializers(proto, embedded)
