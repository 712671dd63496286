"""Reading of a file or ModelProto as a Model, with one-line errors."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from google.protobuf.message import DecodeError, EncodeError

from npuconv import files
from npuconv.errors import ModelError
from npuconv.model import external_data, query, store, untrusted, validate
from npuconv.model.core import Header, Model, NodeMeta, subgraphs
from npuconv.model.proto import all_nodes, import_graph
from npuconv.model.types import Graph

_TFLITE = b"TFL3"  # bytes 4 to 7 of such a file
_DEFAULTS_ARE_OPTIONAL = 4  # IR version; before, every initializer had to be an input
_WITH_PARAMETERS = (*query.CONVOLUTIONS, "BatchNormalization", "Gemm", "LSTM", "GRU", "RNN")
MAX_OPSET = onnx.defs.onnx_opset_version()


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
        return from_proto(source, name=name, sha256=hashlib.sha256(data).hexdigest())
    path = Path(source)
    external_data.check_file(path)
    proto, digest = _read(path)
    external_data.check(untrusted.check(proto, str(path)), str(path), path.parent)
    weights = external_data.read(proto, path)
    if store.size(proto) >= store.LARGE_MODEL:
        # A message frees its memory as a whole only: another one takes its place.
        weights = weights or store.Store()
        proto = store.without_large_tensors(proto, weights)
    return from_proto(proto, name=display_name(source), sha256=digest, weights=weights)


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
    shown_path = Path(path)
    if shown_path.is_absolute():
        shown_path = Path(
            *shown_path.parts[-2:] if shown_path.name == files.UNNAMED else shown_path.parts[-1:]
        )
    return shown_path.as_posix()


def from_proto(
    proto: onnx.ModelProto, *, name: str, sha256: str = "", weights: store.Store | None = None
) -> Model:
    """Return the Model of a proto that is already in memory.

    The proto is not changed. ``weights`` is the store of its large weights, if they are in files.

    Raises:
        ModelError: the graph contradicts itself.
    """
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
    validate.check_proto(proto, name)
    proto = dense(inlined(proto))
    try:
        graph = import_graph(proto)
    except Exception as error:  # its failures have no common base
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(f"{name}: cannot be read as a graph: {reason}") from None
    # IR 1 and 2 had no opset_import: they mean opset 1.
    graph.opset = _standard_opset(proto) or 1
    model = Model(graph, _header(proto), name, sha256, store=weights)
    for tensor in graph.tensors().values() if weights is not None else ():
        initializer = getattr(getattr(tensor, "_values", None), "tensor", None)
        if isinstance(initializer, onnx.TensorProto) and store.is_stored(initializer):
            tensor.values, tensor.data_location = store.array(initializer), None
    _register(model, graph, list(proto.graph.node), {})
    return model


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


def _standard_opset(proto: onnx.ModelProto) -> int | None:
    versions = {o.domain: o.version for o in proto.opset_import}
    return versions.get("", versions.get("ai.onnx"))


def _header(proto: onnx.ModelProto) -> Header:
    initializers = {tensor.name for tensor in proto.graph.initializer}
    inputs = [info.name for info in proto.graph.input if info.name in initializers]
    defaults: tuple[str, ...] = ()  # inputs that a caller may leave out
    if proto.ir_version >= _DEFAULTS_ARE_OPTIONAL and len(inputs) < len(initializers):
        layers = [node for node in proto.graph.node if node.op_type in _WITH_PARAMETERS]
        parameters = {name for node in layers for name in node.input[1:]}
        defaults = tuple(name for name in inputs if name not in parameters)
    return Header(
        ir_version=proto.ir_version,
        producer_name=proto.producer_name,
        producer_version=proto.producer_version,
        domain=proto.domain,
        model_version=proto.model_version,
        doc_string=proto.doc_string,
        metadata=_entries(proto.metadata_props),
        graph_metadata=_entries(proto.graph.metadata_props),
        quantization_annotation=tuple(proto.graph.quantization_annotation),
        defaults=defaults,
    )


def _entries(entries: Any) -> tuple[tuple[str, str], ...]:
    return tuple((entry.key, entry.value) for entry in entries)


def _register(
    model: Model, graph: Graph, protos: list[onnx.NodeProto], counts: dict[str, int]
) -> None:
    """Register origin and notes of every node; an unnamed node is called by its operator."""
    for node, proto in zip(graph.nodes, protos, strict=True):
        number = counts.get(node.op, 0)
        counts[node.op] = number + 1
        origin = node.name or f"{node.op}_{number}"
        notes = _entries(proto.metadata_props)
        model.register(node, NodeMeta((origin,), proto.doc_string, notes))
        for key, inner in subgraphs(node):
            inner_proto = next(a.g for a in proto.attribute if a.name == key)
            _register(model, inner, list(inner_proto.node), counts)


def inlined(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with its local functions inlined.

    Calls of functions of another opset than the model's stay, as operators for the host.

    Args:
        proto: well formed, without functions that call themselves; not changed.
    """
    if not proto.functions:
        return proto
    copy = proto
    # ONNX's inliner drops default attributes: write them into all calls.
    defaults = {(f.domain, f.name): f.attribute_proto for f in proto.functions}
    if any(defaults.values()):
        copy = onnx.ModelProto()
        copy.CopyFrom(proto)
        for nodes in (copy.graph.node, *(function.node for function in copy.functions)):
            for node in all_nodes(nodes):
                names = {attribute.name for attribute in node.attribute}
                missing = defaults.get((node.domain, node.op_type), ())
                node.attribute.extend(default for default in missing if default.name not in names)
    try:
        return onnx.inliner.inline_local_functions(copy)
    except EncodeError:  # over 2 GB
        return proto


def dense(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model with its sparse initializers and Constants made dense.

    Args:
        proto: not changed; ``untrusted`` has checked the sizes of its dense tensors.
    """
    if not proto.graph.sparse_initializer and not any(map(_sparse, proto.graph.node)):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    del copy.graph.sparse_initializer[:]
    copy.graph.initializer.extend(map(_make_dense, proto.graph.sparse_initializer))
    for node in filter(_sparse, copy.graph.node):
        value = _make_dense(node.attribute[0].sparse_tensor)
        del node.attribute[:]
        node.attribute.append(onnx.helper.make_attribute("value", value))
    return copy


def _sparse(node: onnx.NodeProto) -> bool:
    """Return whether the node is a Constant of sparse values (then its only attribute)."""
    return node.op_type == "Constant" and any(a.name == "sparse_value" for a in node.attribute[:1])


def _make_dense(sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    values = onnx.numpy_helper.to_array(sparse.values)
    where = onnx.numpy_helper.to_array(sparse.indices)
    array = np.zeros(tuple(sparse.dims), values.dtype)
    # Positions in the flat array, or one row of coordinates each.
    array[np.unravel_index(where, array.shape) if where.ndim == 1 else tuple(where.T)] = values
    return onnx.numpy_helper.from_array(array, sparse.values.name)
