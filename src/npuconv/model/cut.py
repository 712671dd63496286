"""Large tensors cut out of the bytes of a model, before it is parsed.

A parsed message cannot give the memory of one field back. So the few fields that matter are
found in the bytes: ModelProto.graph, GraphProto.initializer, TensorProto.raw_data. What is
not understood is left as it is, and the parser says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import helper

from npuconv.model import store

_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9  # numbers of fields in onnx.proto
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5  # kinds of fields in any message


class _Field(NamedTuple):
    number: int
    start: int  # of its tag
    value: int  # first byte
    end: int


def cut(data: mmap, path: Path) -> bytes:
    """The model without the bytes of its large initializers, which refer to the file.

    Args:
        data: the file.
        path: where it is.

    Raises:
        ValueError: it is no message.
    """
    return _without(data, 0, len(data), path, (_GRAPH, _INITIALIZER))


def _without(data: mmap, start: int, end: int, path: Path, inner: tuple[int, ...]) -> bytes:
    """A message whose fields ``inner``, one in the other, are cut."""
    pieces, copied = [], start
    for field in _fields(data, start, end):
        if field.number != inner[0] or field.end - field.value < store.TENSOR:
            continue
        if len(inner) > 1:
            made = _without(data, field.value, field.end, path, inner[1:])
        else:
            made = _reference(data, field, path)
        if made:
            pieces += [data[copied : field.start], _varint(inner[0] << 3 | _BYTES)]
            pieces += [_varint(len(made)), made]
            copied = field.end
    return b"".join([*pieces, data[copied:end]])


def _reference(data: mmap, field: _Field, path: Path) -> bytes:
    """An initializer without its bytes; nothing where they must stay."""
    found = [f for f in _fields(data, field.value, field.end) if f.number == _RAW_DATA]
    if len(found) != 1:
        return b""
    raw = found[0]
    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(data[field.value : raw.start] + data[raw.end : field.end])
    except DecodeError:
        return b""
    if tensor.data_location or not fits(tensor, raw.end - raw.value):
        return b""
    place = store.reference(
        tensor.name, tensor.data_type, tensor.dims, path, raw.value, raw.end - raw.value
    )
    return bytes(place.SerializeToString(deterministic=True))


def fits(tensor: onnx.TensorProto, size: int) -> bool:
    """Return whether the tensor is large, has ``size`` bytes, and numpy can view them in place."""
    if min(tensor.dims, default=0) < 0 or size < store.TENSOR:
        return False
    try:
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
    except (KeyError, TypeError):
        return False
    count = 1
    for dim in tensor.dims:
        count *= dim
    plain = helper.np_dtype_to_tensor_dtype(dtype) == tensor.data_type and dtype.kind in "biuf"
    return plain and count * dtype.itemsize == size


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
            raise ValueError("no such kind of field")
        if stop > end:
            raise ValueError("a field is longer than what holds it")
        yield _Field(tag >> 3, position, value, stop)
        position = stop


def _read_varint(data: mmap, position: int, end: int) -> tuple[int, int]:
    found = shift = 0
    while position < end and shift < 64:
        byte = data[position]
        position += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, position
        shift += 7
    raise ValueError("a number without an end")


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)
