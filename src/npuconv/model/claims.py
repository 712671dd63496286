"""Checks that shape, type and bytes of a tensor agree."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache

import onnx
from onnx import TensorProto

from npuconv import limits
from npuconv.errors import ModelError

MOST_AXES = 64  # of a numpy array
_MIB = 2**20
# Where values lie that are not in raw_data; ``int32_data`` for everything else.
_FIELDS: dict[int, str] = {
    TensorProto.FLOAT: "float_data",
    TensorProto.COMPLEX64: "float_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.COMPLEX128: "double_data",
    TensorProto.INT64: "int64_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.UINT64: "uint64_data",
    TensorProto.STRING: "string_data",
}
_COMPLEX = (TensorProto.COMPLEX64, TensorProto.COMPLEX128)
_PER_BYTE = {"UINT4": 2, "INT4": 2, "FLOAT4E2M1": 2, "UINT2": 4, "INT2": 4}
_PACKED = {
    getattr(TensorProto, kind): count
    for kind, count in _PER_BYTE.items()
    if hasattr(TensorProto, kind)
}


def check_tensor(tensor: onnx.TensorProto, name: str) -> None:
    """Refuse a tensor whose shape, type and values contradict each other.

    Raises:
        ModelError: what it says, and what it holds.
        UnicodeDecodeError: text that is none.
    """
    where = f"{name}: tensor {tensor.name!r}"
    if tensor.HasField("segment"):
        raise ModelError(f"{where} is one segment of a tensor, which is not read")
    size = _item_size(tensor, where)
    count = check_shape(tensor.dims, where, size)
    if tensor.data_location == TensorProto.EXTERNAL:
        return
    if tensor.HasField("raw_data"):
        _check_bytes(tensor, where)
    else:
        _check_values(tensor, where, count)


def byte_size(tensor: onnx.TensorProto) -> int:
    """Bytes of the values, by shape and type."""
    count = math.prod(tensor.dims)
    if tensor.data_type in _PACKED:
        return -(-count // _PACKED[tensor.data_type])
    return count * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize


def check_shape(dims: Iterable[int], where: str, size: int = 1) -> int:
    """Return the number of elements of a shape.

    Raises:
        ModelError: a shape that cannot be, or larger than a tensor may be.
    """
    shape = tuple(dims)
    fault, hint = _shape_fault(shape, size, limits.present().tensor_mib)
    if fault:
        raise ModelError(f"{where} {fault}", hint=hint)
    return math.prod(shape)


@lru_cache(maxsize=4096)  # a network has few shapes that are different
def _shape_fault(shape: tuple[int, ...], size: int, limit: int) -> tuple[str, str]:
    """Return the fault of a shape and a hint; empty strings if there is no fault."""
    if len(shape) > MOST_AXES:
        return f"has {len(shape)} axes, over {MOST_AXES}", ""
    if min(shape, default=0) < 0:
        return f"says shape {list(shape)}", ""
    # Of an array without elements numpy wants the other extents to be possible, too.
    most = math.prod(max(dim, 1) for dim in shape) * size
    if most > limit * _MIB:
        text = f"says shape {shown(shape)}: {most / _MIB:,.0f} MiB, over {limit}"
        return text, limits.hint("tensor_mib")
    return "", ""


def check_sparse(sparse: onnx.SparseTensorProto, name: str) -> None:
    """Refuse places outside of the shape, and a shape that is too large when written out.

    Raises:
        ModelError: what is wrong.
    """
    where = f"{name}: sparse tensor {sparse.values.name!r}"
    size = _item_size(sparse.values, where)
    check_shape(sparse.dims, where, size)
    check_tensor(sparse.values, name)
    check_tensor(sparse.indices, name)
    external = (sparse.values.data_location, sparse.indices.data_location)
    if TensorProto.EXTERNAL in external or sparse.indices.data_type != TensorProto.INT64:
        raise ModelError(f"{where}: its places are no integers, or lie in a file")
    places, shape = onnx.numpy_helper.to_array(sparse.indices), list(sparse.dims)
    flat = places.ndim == 1
    if not flat and (places.ndim != 2 or places.shape[1] != len(shape)):
        raise ModelError(f"{where}: its places have shape {list(places.shape)}")
    if len(places) != math.prod(sparse.values.dims):
        raise ModelError(f"{where}: {len(places)} places for {list(sparse.values.dims)} values")
    most = [math.prod(shape)] if flat else shape
    if places.size and (places.min() < 0 or (places.reshape(len(places), -1).max(0) >= most).any()):
        raise ModelError(f"{where}: a place lies outside of shape {shown(shape)}")


def check_info(info: onnx.ValueInfoProto, name: str) -> None:
    """Refuse an input, output or intermediate result that no tensor can be.

    Raises:
        ModelError: its kind, or its shape.
    """
    kind = info.type
    if kind.HasField("map_type") or kind.HasField("sparse_tensor_type"):
        raise ModelError(f"{name}: {info.name!r} is no tensor; only tensors are read")
    fixed = [d.dim_value for d in kind.tensor_type.shape.dim if d.dim_value > 0]
    size = _size_of(kind.tensor_type.elem_type) or 1
    check_shape(fixed, f"{name}: {info.name!r}", size)


def _item_size(tensor: onnx.TensorProto, where: str) -> int:
    size = _size_of(tensor.data_type)
    if not size:
        raise ModelError(f"{where} has unknown type {tensor.data_type}")
    return size


@lru_cache(maxsize=64)
def _size_of(kind: int) -> int:
    """Bytes of an element in memory; 0 for a type that there is not."""
    if kind == TensorProto.STRING:
        return 8
    try:
        return int(onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize)
    except (KeyError, ValueError, TypeError):
        return 0


def _check_bytes(tensor: onnx.TensorProto, where: str) -> None:
    if tensor.data_type == TensorProto.STRING:
        raise ModelError(f"{where}: text cannot be given as bytes")
    wanted, held = byte_size(tensor), len(tensor.raw_data)
    if wanted != held:
        text = f"{where} says shape {shown(tensor.dims)} ({wanted} bytes)"
        raise ModelError(f"{text} but holds {held} bytes")


def _check_values(tensor: onnx.TensorProto, where: str, count: int) -> None:
    values = getattr(tensor, _FIELDS.get(tensor.data_type, "int32_data"))
    wanted = 2 * count if tensor.data_type in _COMPLEX else count
    if tensor.data_type in _PACKED:
        wanted = -(-count // _PACKED[tensor.data_type])
    if len(values) != wanted:
        text = f"{where} says shape {shown(tensor.dims)} ({wanted} values)"
        raise ModelError(f"{text} but holds {len(values)}")
    for text in tensor.string_data:
        text.decode("utf-8")


def shown(shape: Iterable[int]) -> str:
    """A shape for messages, cut where nobody reads on."""
    text = str(list(shape))
    return text if len(text) <= 80 else f"{text[:60]}...]"
