"""Checks on external weights: in ordinary files below the folder of the model."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import onnx

from npuconv import limits
from npuconv.errors import ModelError
from npuconv.model.claims import byte_size, shown

_DIGITS = 19  # of a number of bytes


def check_file(path: Path) -> None:
    """Refuse a model that is no ordinary file, which may never end, or is too large.

    Raises:
        ModelError: which of the two. What is not there is left to whoever reads it.
    """
    try:
        found = path.stat()
    except (OSError, ValueError):
        return
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        raise ModelError(f"{path}: is no ordinary file")
    check_total(found.st_size, str(path))


def check(
    tensors: Iterable[onnx.TensorProto], name: str, folder: Path, own: Path | None = None
) -> None:
    """Refuse external data that lies elsewhere, or is not as long as the tensor.

    Args:
        tensors: of the model.
        name: of the model, for messages.
        folder: of the model.
        own: the model's file, where tensors have been left in it; to be let through.

    Raises:
        ModelError: which tensor, and what is wrong with its place.
    """
    sizes: dict[str, int] = {}
    for tensor in tensors:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            where = f"{name}: external data: {tensor.name!r}"
            entries = _entries(tensor, where)
            location = entries.get("location", "")
            if own is not None and Path(own.anchor, location) == own:
                continue
            if location not in sizes:
                sizes[location] = _size(location, folder, where)
            _check_extent(tensor, entries, sizes[location], where)
    check_total(sum(sizes.values()), name)


def check_total(size: int, name: str) -> None:
    """Refuse a model that is larger than a model may be.

    Raises:
        ModelError: it is.
    """
    limit = limits.present().model_bytes
    if size > limit:
        text = f"{name}: has {size} bytes, over {limit}"
        raise ModelError(text, hint=limits.hint("model_bytes"))


def _entries(tensor: onnx.TensorProto, where: str) -> dict[str, str]:
    entries = {}
    for entry in tensor.external_data:
        if isinstance(entry.key, bytes) or isinstance(entry.value, bytes):
            raise ModelError(f"{where}: not UTF-8 text")
        entries[entry.key] = entry.value
    return entries


def _size(location: str, folder: Path, where: str) -> int:
    """Bytes of the file.

    Raises:
        ModelError: it does not lie below the folder, or is no ordinary file.
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
        found = real.stat()
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or "no file name"
        hint = f"it belongs beside the model, as {short}; or save the model with its data inside"
        raise ModelError(f"{where}: {short!r}: {cause}", hint=hint) from None
    if not real.is_relative_to(home):
        raise ModelError(f"{where}: {short!r} is a link out of the folder of the model")
    if not stat.S_ISREG(found.st_mode):
        raise ModelError(f"{where}: {short!r} is no ordinary file")
    return found.st_size


def _check_extent(tensor: onnx.TensorProto, entries: dict[str, str], size: int, where: str) -> None:
    wanted = byte_size(tensor)
    offset = _number(entries.get("offset") or "0", "offset", where)
    length = _number(entries.get("length") or str(size - min(offset, size)), "length", where)
    if length != wanted:
        text = f"{where}: shape {shown(tensor.dims)} takes {wanted} bytes"
        raise ModelError(f"{text}, {length} are given")
    if offset + length > size:
        text = f"{where}: bytes {offset} to {offset + length} of a file that has {size}"
        raise ModelError(text)


def _number(text: str, key: str, where: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS:
        short = text if len(text) <= 30 else f"{text[:20]}..."
        raise ModelError(f"{where}: {key} {short!r} is no number of bytes")
    return int(text)
