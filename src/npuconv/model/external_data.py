"""External data of a model: checked before it is read; large data stays in its files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

import onnx
from onnx.external_data_helper import ExternalDataInfo, uses_external_data

from npuconv import limits
from npuconv.errors import ModelError
from npuconv.model import store
from npuconv.model.untrusted import byte_size, shape_text

_DIGITS = 19  # of a number of bytes
_MAX_LISTED = 2**27  # bytes of a model that ``files`` reads: with external data it is smaller


def check_file(path: Path) -> None:
    """Refuse a model that is not a regular file, which may never end, or is too large.

    Raises:
        ModelError: either of the two; reading reports a missing file.
    """
    try:
        stats = path.stat()
    except (OSError, ValueError):
        return
    if not stat.S_ISREG(stats.st_mode) and not stat.S_ISDIR(stats.st_mode):
        raise ModelError(f"{path}: is no ordinary file")
    _check_total(stats.st_size, str(path))


def check(tensors: Iterable[onnx.TensorProto], name: str, folder: Path) -> None:
    """Refuse external data outside of the model's folder, or not as long as its tensor.

    Raises:
        ModelError: names the tensor, and the fault of its place.
    """
    sizes: dict[str, int] = {}
    for tensor in tensors:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            where = f"{name}: external data: {tensor.name!r}"
            entries = _entries(tensor, where)
            location = entries.get("location", "")
            if location not in sizes:
                sizes[location] = _file_size(location, folder, where)
            _check_extent(tensor, entries, sizes[location], where)
    _check_total(sum(sizes.values()), name)


def _check_total(size: int, name: str) -> None:
    limit = limits.present().model_bytes
    if size > limit:
        text = f"{name}: has {size} bytes, over {limit}"
        raise ModelError(text, hint=limits.hint("model_bytes"))


def _entries(tensor: onnx.TensorProto, where: str) -> dict[str, str]:
    if any(isinstance(text, bytes) for e in tensor.external_data for text in (e.key, e.value)):
        raise ModelError(f"{where}: not UTF-8 text")
    return {entry.key: entry.value for entry in tensor.external_data}


def _file_size(location: str, folder: Path, where: str) -> int:
    """Return the bytes of a file of external data.

    Raises:
        ModelError: it is not below the folder, or no regular file.
    """
    short = location if len(location) <= 100 else f"{location[:60]}..."
    plain = location.replace("\\", "/")
    parts = PurePosixPath(plain).parts
    if not parts or "\0" in location:
        raise ModelError(f"{where}: {short!r} is no file name")
    if plain.startswith("/") or ".." in parts or ":" in parts[0]:
        raise ModelError(f"{where}: {short!r} is not below the folder of the model")
    try:
        home, real = Path(os.path.realpath(folder)), Path(os.path.realpath(folder / location))
        stats = real.stat()
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or "no file name"
        hint = f"it belongs beside the model, as {short}; or save the model with its data inside"
        raise ModelError(f"{where}: {short!r}: {cause}", hint=hint) from None
    if not real.is_relative_to(home):
        raise ModelError(f"{where}: {short!r} is a link out of the folder of the model")
    if not stat.S_ISREG(stats.st_mode):
        raise ModelError(f"{where}: {short!r} is no ordinary file")
    return stats.st_size


def _check_extent(tensor: onnx.TensorProto, entries: dict[str, str], size: int, where: str) -> None:
    needed = byte_size(tensor)
    offset = _number(entries.get("offset") or "0", "offset", where)
    length = _number(entries.get("length") or str(size - min(offset, size)), "length", where)
    if length != needed:
        text = f"{where}: shape {shape_text(tensor.dims)} takes {needed} bytes"
        raise ModelError(f"{text}, {length} are given")
    if offset + length > size:
        text = f"{where}: bytes {offset} to {offset + length} of a file that has {size}"
        raise ModelError(text)


def _number(text: str, key: str, where: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS:
        short = text if len(text) <= 30 else f"{text[:20]}..."
        raise ModelError(f"{where}: {key} {short!r} is no number of bytes")
    return int(text)


def references(tensors: Sequence[onnx.TensorProto], path: Path) -> Mapping[int, onnx.TensorProto]:
    """Return references to tensors that stay in their files, by index; none if all can be held.

    Args:
        tensors: initializers.
        path: of the model; no file above its folder is looked at.

    Raises:
        ValueError: an offset or length that is not a number.
    """
    result: dict[int, onnx.TensorProto] = {}
    total = 0
    for index, tensor in enumerate(tensors):
        if uses_external_data(tensor) and (place := _place(tensor, path)):
            total += place[2]
            result[index] = store.reference(tensor.name, tensor.data_type, tensor.dims, *place)
    return result if total >= store.LARGE_MODEL else {}


def files(path: Path) -> list[Path]:
    """Return the files of external data of a model; none for an unreadable model."""
    try:
        if not path.is_file() or path.stat().st_size > _MAX_LISTED:
            return []
        proto = onnx.load_model(path, load_external_data=False)
    except Exception:  # loading it reports the fault
        return []
    locations = (
        ExternalDataInfo(t).location for t in proto.graph.initializer if uses_external_data(t)
    )
    return [path.parent / location for location in dict.fromkeys(locations)]


def _place(tensor: onnx.TensorProto, path: Path) -> tuple[Path, int, int] | None:
    """Return file, offset and length; None for a tensor that onnx is to read or refuse."""
    info = ExternalDataInfo(tensor)
    home = path.parent.resolve()
    file = (home / info.location).resolve()
    if Path(info.location).is_absolute() or not file.is_relative_to(home) or not file.is_file():
        return None
    offset, end = info.offset or 0, file.stat().st_size
    length = info.length if info.length is not None else end - offset
    if offset < 0 or offset + length > end or not store.can_map(tensor, length):
        return None
    return file, offset, length
