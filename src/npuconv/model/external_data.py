"""External data of a model: checked before it is read; large data stays in its files."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import onnx
from onnx.external_data_helper import (
    _get_all_tensors,
    load_external_data_for_model,
    uses_external_data,
)

from npuconv import limits
from npuconv.errors import ModelError
from npuconv.files import is_special
from npuconv.model import store
from npuconv.model.untrusted import byte_size, shape_text

_DIGITS = 19  # most digits of a number of bytes
_MAX_LISTED = 2**27  # most bytes of a file that ``files`` reads: with external data it is small


def check_file(path: Path) -> None:
    """Refuse a model that is not a regular file, which may never end, or is too large.

    Raises:
        ModelError: either of the two; reading reports a missing file.
    """
    if is_special(path):
        raise ModelError(f"{path}: is no ordinary file")
    with contextlib.suppress(OSError, ValueError):
        _check_total(path.stat().st_size, str(path))


def check(tensors: Iterable[onnx.TensorProto], name: str, folder: Path) -> None:
    """Refuse external data outside of the model's folder, or not as long as its tensor.

    Raises:
        ModelError: names the tensor, and the fault of its place.
    """
    sizes: dict[str, int] = {}
    for tensor in tensors:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            where = f"{name}: external data: {tensor.name!r}"
            entries = {entry.key: entry.value for entry in tensor.external_data}
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


def read(proto: onnx.ModelProto, path: Path) -> store.Store | None:
    """Read the external data of a checked model, or leave it in its files if it is large.

    Args:
        proto: the model, changed: no tensor has external data, or initializers have references.
        path: file of the model.

    Returns:
        The store of the weights that are left in files, if there are any.

    Raises:
        ModelError: a file cannot be read.
    """
    tensors = proto.graph.initializer
    places = {i: place for i, t in enumerate(tensors) if (place := _place(t, path.parent))}
    if sum(size for _, _, size in places.values()) < store.LARGE_MODEL:
        places = {}
    for index in places:
        tensors[index].ClearField("data_location")
    try:
        load_external_data_for_model(proto, str(path.parent))
    except Exception as error:  # checker, OS and value errors alike
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(f"{path}: external data: {reason}") from None
    for tensor in tensors:
        tensor.ClearField("data_location")  # the data has been read
    for index, place in places.items():
        name, kind, dims = tensors[index].name, tensors[index].data_type, tensors[index].dims
        tensors[index].CopyFrom(store.reference(name, kind, dims, *place))
    return store.Store() if places else None


def files(path: Path) -> list[Path]:
    """Return the files of external data of a model; none for an unreadable model."""
    try:
        if not path.is_file() or path.stat().st_size > _MAX_LISTED:
            return []
        proto = onnx.load_model(path, load_external_data=False)
        tensors = filter(uses_external_data, _get_all_tensors(proto))
        entries = (entry for tensor in tensors for entry in tensor.external_data)
        locations = dict.fromkeys(entry.value for entry in entries if entry.key == "location")
        return [path.parent / location for location in locations]
    except Exception:  # loading it reports the fault
        return []


def _place(tensor: onnx.TensorProto, folder: Path) -> tuple[Path, int, int] | None:
    """Return file, offset and length of checked external data; None if it cannot be mapped."""
    if not uses_external_data(tensor) or not store.can_map(tensor, byte_size(tensor)):
        return None
    entries = {entry.key: entry.value for entry in tensor.external_data}
    file = (folder / entries["location"]).resolve()
    return file, int(entries.get("offset") or 0), byte_size(tensor)
