"""A file or ModelProto becomes a Model, or a one-line reason why it cannot."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError, EncodeError

from npuconv import files
from npuconv.errors import ModelError
from npuconv.model import (
    cut,
    dense,
    external,
    importing,
    inlining,
    outside_data,
    store,
    trust,
    verify,
)
from npuconv.model.core import Header, Model, NodeMeta, subgraphs
from npuconv.model.types import Graph, Node

MAX_OPSET = onnx.defs.onnx_opset_version()


def load(source: str | Path | onnx.ModelProto) -> Model:
    """Read a model and check that it is one.

    Args:
        source: path of a ``.onnx`` file (external data beside it), or a ModelProto,
            which is not changed.

    Returns:
        The model, with the origin of every node noted.

    Raises:
        ModelError: not a file, empty, not ONNX, damaged, or a graph that contradicts itself.
    """
    if isinstance(source, onnx.ModelProto):
        name = source.graph.name or "model"
        trust.check(source, name)
        return from_proto(source, name=name, sha256=_digest(source, name))
    path = Path(source)
    outside_data.check_file(path)
    large = _read_large(path)
    proto, digest = large or _read_small(path)
    trust.check(proto, str(path), path.parent, path.resolve() if large else None)
    kept = _load_external(proto, path, cut_from=path if large else None)
    return from_proto(proto, name=display_name(source), sha256=digest, kept=kept)


def _read_small(path: Path) -> tuple[onnx.ModelProto, str]:
    data = _read(path)
    return _parse(data, path), hashlib.sha256(data).hexdigest()


def _read_large(path: Path) -> tuple[onnx.ModelProto, str] | None:
    """Read a model without its large tensors; None if the file is small or not understood."""
    try:
        if not path.is_file() or path.stat().st_size < store.LARGE:
            return None
        data = cut.cut(files.MappedFile(path).memory, path.resolve())
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except (OSError, ValueError):
        return None
    return _parse(data, path), digest


def _digest(proto: onnx.ModelProto, name: str) -> str:
    try:
        return hashlib.sha256(proto.SerializeToString(deterministic=True)).hexdigest()
    except EncodeError:
        hint = "save it with external data and give the path"
        raise ModelError(f"{name}: over 2 GB, too large for one piece", hint=hint) from None


def display_name(path: str | Path) -> str:
    """The path as reports show it: as given if relative, else without its folders."""
    given = Path(path)
    return given.name if given.is_absolute() else given.as_posix()


def from_proto(
    proto: onnx.ModelProto, *, name: str, sha256: str = "", kept: store.Store | None = None
) -> Model:
    """A Model from a proto that is already in memory.

    Args:
        proto: not changed.
        name: what messages call it.
        sha256: of its file.
        kept: where its large weights are, if they are in files.

    Raises:
        ModelError: the graph contradicts itself.
    """
    _check_header(proto, name)
    verify.check_proto(proto, name)
    proto = dense.dense(inlining.inlined(proto))
    try:
        graph = importing.import_graph(proto)
    except Exception as error:  # its failures have no common base
        raise ModelError(f"{name}: cannot be read as a graph: {_first_line(error)}") from None
    # IR 1 and 2 had no opset_import; their operators are those of opset 1.
    graph.opset = _standard_opset(proto) or 1
    model = Model(graph, _header(proto), name, sha256, opset_source=graph.opset, store=kept)
    if kept is not None:
        _map(graph, kept)
    _register(model, graph, list(proto.graph.node), {})
    return model


def _read(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except IsADirectoryError:
        hint = "give a model in it; npuconv check takes directories, npuconv batch converts many"
        raise ModelError(f"{path}: is a directory, not a model", hint=hint) from None
    except OSError as error:
        raise ModelError(f"{path}: cannot be read: {error.strerror}") from None
    if not data:
        raise ModelError(f"{path}: is empty")
    return data


def _parse(data: bytes, path: Path) -> onnx.ModelProto:
    try:
        return onnx.load_model_from_string(data)
    except (DecodeError, ValueError):
        kind = "a text file" if _looks_like_text(data) else "truncated, or another format"
        raise ModelError(f"{path}: is not an ONNX model ({kind})") from None


def _looks_like_text(data: bytes) -> bool:
    head = data[:512]
    return all(byte >= 32 or byte in b"\t\r\n" for byte in head)


def _load_external(
    proto: onnx.ModelProto, path: Path, *, cut_from: Path | None = None
) -> store.Store | None:
    """Weights in other files: read, or where there are too many of them left there."""
    tensors = proto.graph.initializer
    try:
        left = external.left(tensors, path, cut_from)
        for index in left:
            tensors[index].ClearField("data_location")
        onnx.external_data_helper.load_external_data_for_model(proto, str(path.parent))
    except Exception as error:  # checker, OS and value errors alike
        raise ModelError(f"{path}: external data: {_first_line(error)}") from None
    for tensor in tensors:
        tensor.ClearField("data_location")  # says nothing but that it has been read
    for index, reference in left.items():
        tensors[index].CopyFrom(reference)
    return store.Store() if left else None


def _check_header(proto: onnx.ModelProto, name: str) -> None:
    if not proto.HasField("graph"):
        raise ModelError(f"{name}: is not an ONNX model (it has no graph)")
    if not proto.graph.node:
        raise ModelError(f"{name}: the graph has no nodes")
    standard = _standard_opset(proto)
    if standard is not None and not 1 <= standard <= MAX_OPSET:
        raise ModelError(
            f"{name}: opset {standard} is newer than this onnx package knows ({MAX_OPSET})"
            if standard > MAX_OPSET
            else f"{name}: opset {standard} does not exist",
            hint="upgrade the onnx package" if standard > MAX_OPSET else "",
        )


def _standard_opset(proto: onnx.ModelProto) -> int | None:
    versions = {o.domain: o.version for o in proto.opset_import}
    return versions.get("", versions.get("ai.onnx"))


def _map(graph: Graph, kept: store.Store) -> None:
    """Let constants be views of the files that hold them."""
    for tensor in graph.tensors().values():
        proto = getattr(getattr(tensor, "_values", None), "tensor", None)
        if isinstance(proto, onnx.TensorProto) and store.is_stored(proto):
            tensor.values, tensor.data_location = kept.open(proto), None


def _header(proto: onnx.ModelProto) -> Header:
    return Header(
        ir_version=proto.ir_version,
        producer_name=proto.producer_name,
        producer_version=proto.producer_version,
        domain=proto.domain,
        model_version=proto.model_version,
        doc_string=proto.doc_string,
        metadata=_entries(proto.metadata_props),
        graph_metadata=_entries(getattr(proto.graph, "metadata_props", ())),
        quantization_annotation=tuple(proto.graph.quantization_annotation),
    )


def _entries(entries: Any) -> tuple[tuple[str, str], ...]:
    return tuple((entry.key, entry.value) for entry in entries)


def _register(
    model: Model, graph: Graph, protos: list[onnx.NodeProto], counts: dict[str, int]
) -> None:
    """Note origin and notes of every node; an unnamed one is called by its operator."""
    for node, proto in zip(graph.nodes, protos, strict=True):
        number = counts.get(node.op, 0)
        counts[node.op] = number + 1
        origin = node.name or f"{node.op}_{number}"
        model.register(
            node,
            NodeMeta((origin,), proto.doc_string, _entries(getattr(proto, "metadata_props", ()))),
        )
        _register_subgraphs(model, node, proto, counts)


def _register_subgraphs(
    model: Model, node: Node, proto: onnx.NodeProto, counts: dict[str, int]
) -> None:
    for key, graph in subgraphs(node):
        inner = next(a.g for a in proto.attribute if a.name == key)
        _register(model, graph, list(inner.node), counts)


def _first_line(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]
