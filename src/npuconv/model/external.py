"""Weights in other files than the model: which may stay there, to be mapped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from npuconv.model import cut, store

_SMALL = 2**27  # bytes: what has its weights elsewhere is smaller


def left(
    tensors: Sequence[onnx.TensorProto], path: Path, cut_from: Path | None
) -> Mapping[int, onnx.TensorProto]:
    """References to where tensors stay, by their number; empty where all can be held.

    Args:
        tensors: initializers.
        path: of the model; nothing above its folder is looked at.
        cut_from: the model itself, where tensors have been cut out of it.

    Raises:
        ValueError: an offset or length that is no number.
    """
    own = {} if cut_from is None else {"": cut_from.resolve()}
    found: dict[int, onnx.TensorProto] = {}
    size = 0
    for index, tensor in enumerate(tensors):
        if uses_external_data(tensor) and (place := _place(tensor, path, own.get(""))):
            file, offset, length = place
            size += length
            found[index] = store.reference(
                tensor.name, tensor.data_type, tensor.dims, file, offset, length
            )
    return found if own or size >= store.LARGE else {}


def files(path: Path) -> list[Path]:
    """Files that weights of a model lie in, by what it says; none of one that cannot be read.

    Args:
        path: of the model.
    """
    try:
        if not path.is_file() or path.stat().st_size > _SMALL:
            return []
        proto = onnx.load_model(path, load_external_data=False)
    except Exception:  # whoever loads it says what is wrong
        return []
    found = (ExternalDataInfo(t).location for t in proto.graph.initializer if uses_external_data(t))
    return [path.parent / location for location in dict.fromkeys(found)]


def _place(tensor: onnx.TensorProto, path: Path, own: Path | None) -> tuple[Path, int, int] | None:
    """File, offset and length; None for what onnx is to read, and to complain about."""
    info = ExternalDataInfo(tensor)
    if own is not None and Path(store.ROOT, info.location) == own:
        file = own
    else:
        home = path.parent.resolve()
        file = (home / info.location).resolve()
        if Path(info.location).is_absolute() or not file.is_relative_to(home):
            return None
    if not file.is_file():
        return None
    offset, end = info.offset or 0, file.stat().st_size
    length = info.length if info.length is not None else end - offset
    if offset < 0 or offset + length > end or not cut.fits(tensor, length):
        return None
    return file, offset, length
