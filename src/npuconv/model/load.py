"""Reading of a file or ModelProto as a Model, with one-line errors."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError, EncodeError

from npuconv import files
from npuconv.errors import ModelError
from npuconv.model import Model, external_data, store, untrusted
from npuconv.model.graph_import import import_model

_TFLITE = b"TFL3"  # bytes 4 to 7 of a TFLite file


def load(source: str | Path | onnx.ModelProto) -> Model:
    """Read and check a model.

    Args:
        source: path of a ``.onnx`` file (external data beside it), or a ModelProto,
            which is not changed.

    Returns:
        The model, with the origin of every node.

    Raises:
        ModelError: not a file, empty, not ONNX, damaged, or a graph that contradicts itself.
    """
    if isinstance(source, onnx.ModelProto):
        name = source.graph.name or "model"
        untrusted.check(source, name)
        try:
            data = source.SerializeToString(deterministic=True)
        except EncodeError:
            hint = "save it with external data and give the path"
            raise ModelError(f"{name}: over 2 GB, too large for one piece", hint=hint) from None
        return import_model(source, name, hashlib.sha256(data).hexdigest(), None)
    path = Path(source)
    external_data.check_file(path)
    proto, digest = _read(path)
    external_data.check(untrusted.check(proto, str(path)), str(path), path.parent)
    weights = external_data.read(proto, path)
    if store.size(proto) >= store.LARGE_MODEL:
        # A message frees its memory all at once, so a smaller message replaces it.
        weights = weights or store.Store()
        proto = store.without_large_tensors(proto, weights)
    return import_model(proto, display_name(source), digest, weights)


def _read(path: Path) -> tuple[onnx.ModelProto, str]:
    """Parse a file; return the model and the digest of the file."""
    with contextlib.suppress(OSError, ValueError):  # reading the file states the fault
        if path.is_file() and path.stat().st_size >= store.LARGE_MODEL:
            mapped = files.MappedFile.open(path)  # bytes would take as much memory as the model
            digest = hashlib.sha256(mapped).hexdigest()
            files.release_mapped()
            return _parse(memoryview(mapped), path), digest
    data = read_bytes(path)
    return _parse(data, path), hashlib.sha256(data).hexdigest()


def display_name(path: str | Path) -> str:
    """Return the path as reports show it: as given if relative, else without its folders.

    Of an absolute path the last folder stays if the name of the file is ``files.UNNAMED``.
    """
    short = Path(path)
    if short.is_absolute():
        short = Path(*short.parts[-2 if short.name == files.UNNAMED else -1 :])
    return short.as_posix()


def read_bytes(path: Path) -> bytes:
    """Return the bytes of a model's file.

    Raises:
        ModelError: there is none, it is a folder, or it is empty.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except IsADirectoryError:
        inside = path / "model.onnx"
        advice = f"give {inside}" if inside.is_file() else "give a model in it"
        hint = f"{advice}; npuconv check takes directories, npuconv batch converts many"
        raise ModelError(f"{path}: is a directory, not a model", hint=hint) from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from None
    if not data:
        raise ModelError(f"{path}: is empty")
    return data


def _parse(data: bytes | memoryview, path: Path) -> onnx.ModelProto:
    try:
        proto = onnx.ModelProto()
        proto.ParseFromString(data)
        return proto
    except (DecodeError, ValueError):
        is_text = all(byte >= 32 or byte in b"\t\r\n" for byte in data[:512])
        kind = "a text file" if is_text else "truncated, or another format"
        kind = "a TFLite file" if data[4:8] == _TFLITE else kind
        raise ModelError(f"{path}: is not an ONNX model ({kind})") from None
