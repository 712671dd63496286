"""Conversion of a Model to a ModelProto, and of that to a file.

Fields that graph-surgeon drops are put back. A model of more than 2 GB has its weights in a
second file, named after its content, so that a model always has the weights that belong to it.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import EncodeError
from numpy.typing import NDArray
from onnx import helper
from onnx_graphsurgeon.exporters.onnx_exporter import OnnxExporter

from npuconv import files
from npuconv.errors import OutputError
from npuconv.model import Model, Node, Tensor, query, store
from npuconv.model.proto import Types, is_packed, metadata_of, node_proto

# onnxruntime 1.20 of November 2024 loads no newer IR; only a newer opset raises it.
MAX_IR = 10

_PAGE = 4096  # bytes: tensors of a file of weights begin on a page, so that runtimes can map them
_MIN_EXTERNAL = 1024  # least bytes of a tensor in a file of weights
_MAX_INTEGERS = 1024  # bytes of int64 constants, such as pads, that are not written as raw data
_DIGITS = 16  # digits of the digest in the name of a file of weights
_CHUNK = 8 * 2**20  # bytes written at a time

Tensors = Sequence[onnx.TensorProto]


def to_proto(model: Model, metadata: Mapping[str, str] | None = None) -> onnx.ModelProto:
    """Return the model as ONNX.

    ``metadata`` are entries of ``metadata_props`` to add or replace.
    """
    used = {node.domain or "" for node, _ in model.walk()}
    versions = {o.domain: o.version for o in model.graph.import_domains or ()}
    versions |= {d: 1 for d in used if d not in versions and d not in query.STANDARD_DOMAINS}
    imports = [helper.make_opsetid("", model.opset)]
    domains = sorted(d for d in versions if d not in query.STANDARD_DOMAINS)
    proto = helper.make_model(
        _graph(model),
        opset_imports=imports + [helper.make_opsetid(d, versions[d]) for d in domains],
        functions=[OnnxExporter.export_function(f) for f in model.graph.functions],
        ir_version=ir_version(model.header.ir_version, model.opset),
    )
    header = model.header
    proto.producer_name, proto.producer_version = header.producer_name, header.producer_version
    proto.domain, proto.model_version = header.domain, header.model_version
    proto.doc_string = header.doc_string
    for key, text in (dict(header.metadata) | dict(metadata or {})).items():
        proto.metadata_props.add(key=key, value=text)
    return proto


def add_metadata(model: onnx.ModelProto, notes: Mapping[str, str]) -> None:
    """Add entries to the metadata or replace them; entries with an empty text are left out."""
    notes = {key: text for key, text in notes.items() if text}
    helper.set_model_props(model, metadata_of(model) | notes)


def ir_version(source: int, opset: int) -> int:
    """Return an IR version that allows the opset and that older runtimes load."""
    needed = helper.OP_SET_ID_VERSION_MAP.get(("ai.onnx", opset), MAX_IR)
    return int(max(needed, min(max(source, 4), MAX_IR)))


def to_bytes(proto: onnx.ModelProto) -> bytes:
    """Serialize a model; map fields in a fixed order, so that equal models have equal bytes."""
    return bytes(proto.SerializeToString(deterministic=True))


def save(proto: onnx.ModelProto, path: str | Path) -> None:
    """Write a model atomically; weights that exceed one file go into a second beside it.

    Raises:
        OutputError: the destination cannot be written.
    """
    files.check_writable(path)
    try:
        with files.together():
            light = _write_weights(proto, Path(path))
            files.write(path, to_bytes(light))
            files.afterwards(partial(_drop_weights, light, Path(path)))
    except EncodeError:
        raise OutputError(f"{path}: over 2 GB without its weights: no file can hold it") from None


def _write_weights(proto: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """Write weights that exceed one file; return the model without these."""
    if store.size(proto) <= store.MAX_INLINE:
        return store.whole(proto)
    tensors = [t for t in proto.graph.initializer if _is_moved(t)]
    digest = hashlib.sha256()
    for piece in _pieces(tensors):
        digest.update(piece)
    name = f"{path.name}.{digest.hexdigest()[:_DIGITS]}.data"
    files.write(path.with_name(name), _pieces(tensors))
    offset = 0

    def moved(tensor: onnx.TensorProto) -> onnx.TensorProto:
        nonlocal offset
        if not _is_moved(tensor):
            return tensor
        size, kind = _raw_bytes(tensor).size, tensor.data_type
        result = store.reference(tensor.name, kind, tensor.dims, Path(name), offset, size)
        result.external_data[0].value = name
        offset += -(-size // _PAGE) * _PAGE
        return result

    return store.with_initializers(proto, moved)


def _drop_weights(proto: onnx.ModelProto, path: Path) -> None:
    """Remove files of weights of earlier versions of the model."""
    used = {e.value for t in proto.graph.initializer for e in t.external_data}
    for old in path.parent.glob(f"{glob.escape(path.name)}.{'[0-9a-f]' * _DIGITS}.data"):
        if old.name not in used:
            with contextlib.suppress(OSError):
                old.unlink()


def _is_moved(tensor: onnx.TensorProto) -> bool:
    return store.is_stored(tensor) or len(tensor.raw_data) >= _MIN_EXTERNAL


def _pieces(tensors: Tensors) -> Iterator[Any]:
    """Yield the content of a file of weights."""
    for tensor in tensors:
        flat = _raw_bytes(tensor)
        for start in range(0, flat.size, _CHUNK):
            files.count_mapped(_CHUNK)
            yield flat[start : start + _CHUNK].data
        yield bytes(-flat.size % _PAGE)


def _raw_bytes(tensor: onnx.TensorProto) -> NDArray[np.uint8]:
    if store.is_stored(tensor):
        return store.array(tensor).reshape(-1).view(np.uint8)
    return np.frombuffer(tensor.raw_data, np.uint8)


def _graph(model: Model) -> onnx.GraphProto:
    graph = model.graph
    typed = query.typed_results(graph, graph.nodes)
    constants = {t.name: t for t in query.constants(graph.nodes)}
    # An output may be a constant that no node reads.
    constants |= {t.name: t for t in graph.outputs if query.is_constant(t)}
    # A branch of an If that is never taken may contradict the shapes around it.
    has_branches = any(path for _, path in model.walk())
    proto = helper.make_graph(
        [_node(model, node) for node in graph.nodes],
        graph.name,
        [OnnxExporter.export_value_info_proto(t, True) for t in graph.inputs],
        [OnnxExporter.export_value_info_proto(t, t.dtype is not None) for t in graph.outputs],
        [_initializer(model, t) for t in constants.values()],
        doc_string=graph.doc_string,
    )
    types = Types()
    for tensor in () if has_branches else typed:
        types.write(tensor, proto.value_info.add())
    proto.quantization_annotation.extend(model.header.quantization_annotation)
    for key, text in model.header.graph_metadata:
        proto.metadata_props.add(key=key, value=text)
    return proto


def _initializer(model: Model, tensor: Tensor) -> onnx.TensorProto:
    """Return a constant with its values, or with their place in a file."""
    values = getattr(tensor, "_values", None)
    if isinstance(values, np.ndarray) and values.dtype.kind in "OSU":  # loaded text
        return onnx.numpy_helper.from_array(values.astype(object), tensor.name)
    if is_packed(tensor.dtype):  # the exporter takes a byte for each element
        return onnx.numpy_helper.from_array(tensor.values, tensor.name)
    if (
        model.store is not None
        and isinstance(values, np.ndarray)
        and tensor.export_dtype == values.dtype
        and values.nbytes >= store.LARGE_TENSOR
    ):
        tensor.values = model.store.keep(values)
        return store.initializer(tensor.name, tensor.values)
    proto = OnnxExporter.export_tensor_proto(tensor)
    is_small = 0 < len(proto.raw_data) <= _MAX_INTEGERS
    if is_small and proto.data_type == onnx.TensorProto.INT64:
        # RKNN-Toolkit2 adds to the pads of a Pad in place, which raw data forbids.
        proto.int64_data.extend(onnx.numpy_helper.to_array(proto).reshape(-1).tolist())
        proto.ClearField("raw_data")
    return proto


def _node(model: Model, node: Node) -> onnx.NodeProto:
    proto = node_proto(node)
    meta = model.meta(node)
    if meta:
        proto.doc_string = meta.doc_string
        for key, text in meta.metadata:
            proto.metadata_props.add(key=key, value=text)
    return proto
