"""A model's weights in a file beside it: for models of more than 2 GB."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from npuconv import files
from npuconv.model import store

PAGE = 4096  # bytes: tensors begin on one, so that runtimes can map them
_LEAST = 1024  # bytes of a tensor that is worth it
_DIGITS = 16  # of a digest, in the name
_CHUNK = 8 * 2**20  # bytes written at a time

Tensors = Sequence[onnx.TensorProto]


def tensors_of(proto: onnx.ModelProto) -> Tensors:
    """Return the tensors that go into the file, in the order of the model."""
    return [t for t in proto.graph.initializer if _is_moved(t)]


def referring(proto: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """The model with its weights in a file of that name; not a byte of them is copied."""
    made = onnx.ModelProto()
    _copy_fields(proto, made, "graph")
    _copy_fields(proto.graph, made.graph, "initializer")
    offset = 0
    for tensor in proto.graph.initializer:
        new = made.graph.initializer.add()
        if not _is_moved(tensor):
            new.CopyFrom(tensor)
            continue
        size = _bytes(tensor).size
        new.CopyFrom(
            store.reference(tensor.name, tensor.data_type, tensor.dims, Path(name), offset, size)
        )
        new.external_data[0].value = name
        offset += -(-size // PAGE) * PAGE
    return made


def _copy_fields(source: Any, into: Any, but: str) -> None:
    for field, value in source.ListFields():
        if field.name == but:
            continue
        if field.type == field.TYPE_MESSAGE or hasattr(value, "extend"):
            getattr(into, field.name).MergeFrom(value)
        else:
            setattr(into, field.name, value)


def _is_moved(tensor: onnx.TensorProto) -> bool:
    return store.is_stored(tensor) or len(tensor.raw_data) >= _LEAST


def name_of(path: Path, tensors: Tensors) -> str:
    """The name of the file: that of the model, and a digest of the content."""
    digest = hashlib.sha256()
    for piece in pieces(tensors):
        digest.update(piece)
    return f"{path.name}.{digest.hexdigest()[:_DIGITS]}.data"


def all_of(path: Path) -> Iterator[Path]:
    """The files of weights of a model, those of earlier versions included."""
    digits = "[0-9a-f]" * _DIGITS
    return path.parent.glob(f"{glob.escape(path.name)}.{digits}.data")


def pieces(tensors: Tensors) -> Iterator[Any]:
    """The content of the file."""
    for tensor in tensors:
        flat = _bytes(tensor)
        for start in range(0, flat.size, _CHUNK):
            files.count_mapped(_CHUNK)
            yield flat[start : start + _CHUNK].data
        yield bytes(-flat.size % PAGE)


def _bytes(tensor: onnx.TensorProto) -> NDArray[np.uint8]:
    if store.is_stored(tensor):
        return store.array(tensor).reshape(-1).view(np.uint8)
    return np.frombuffer(tensor.raw_data, np.uint8)
