"""A Model becomes a ModelProto again, with everything graph-surgeon dropped put back."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import EncodeError
from onnx import helper
from onnx_graphsurgeon.exporters.onnx_exporter import OnnxExporter

from npuconv import files
from npuconv.errors import OutputError
from npuconv.model import outside, protos, query, skeleton, store
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor

# onnxruntime 1.20 of November 2024 loads IR 10 and opset 21 at most.
MAX_IR = 10
MAX_OPSET = 21


def to_proto(model: Model, metadata: Mapping[str, str] | None = None) -> onnx.ModelProto:
    """The model as ONNX.

    Args:
        model: the model.
        metadata: entries added to ``metadata_props``; a key that is there is replaced.
    """
    proto = helper.make_model(
        _graph(model),
        opset_imports=_opsets(model),
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


def ir_version(source: int, opset: int) -> int:
    """An IR version that holds the opset and that older runtimes load."""
    needed = helper.OP_SET_ID_VERSION_MAP.get(("ai.onnx", opset), MAX_IR)
    return int(max(needed, min(max(source, 4), MAX_IR)))


def to_bytes(proto: onnx.ModelProto) -> bytes:
    """The same model gives the same bytes (map fields would not, otherwise)."""
    return bytes(proto.SerializeToString(deterministic=True))


def save(proto: onnx.ModelProto, path: str | Path) -> None:
    """Write a model whole or not at all.

    What does not fit into one file of 2 GB goes into a second beside it. That is named
    after its content, so that at any moment the model has the weights that belong to it.

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
    """The model as it goes into its file; its weights go into another if they must."""
    if store.size(proto) <= store.INLINE:
        return store.whole(proto)
    tensors = outside.tensors_of(proto)
    name = outside.name_of(path, tensors)
    files.write(path.with_name(name), outside.pieces(tensors))
    return outside.referring(proto, name)


def _drop_weights(proto: onnx.ModelProto, path: Path) -> None:
    """Remove weights of a model that was here before."""
    used = {e.value for t in proto.graph.initializer for e in t.external_data}
    for old in outside.all_of(path):
        if old.name not in used:
            with contextlib.suppress(OSError):
                old.unlink()


def _graph(model: Model) -> onnx.GraphProto:
    graph = model.graph
    proto = helper.make_graph(
        [_node(model, node) for node in graph.nodes],
        graph.name,
        [OnnxExporter.export_value_info_proto(t, True) for t in graph.inputs],
        [_output_info(t) for t in graph.outputs],
        [_initializer(model, t) for t in _initializers(model)],
        doc_string=graph.doc_string,
        value_info=[skeleton.value_info(t) for t in _known(model)],
    )
    proto.quantization_annotation.extend(model.header.quantization_annotation)
    for key, text in model.header.graph_metadata:
        proto.metadata_props.add(key=key, value=text)
    return proto


def _initializers(model: Model) -> list[Tensor]:
    found = {t.name: t for t in skeleton.constants(model.graph)}
    # An output may be a constant that no node reads.
    found |= {t.name: t for t in model.graph.outputs if query.is_constant(t)}
    return list(found.values())


def _initializer(model: Model, tensor: Tensor) -> onnx.TensorProto:
    """A constant with its values, or with the place where they are."""
    kept, values = model.store, getattr(tensor, "_values", None)
    if isinstance(values, np.ndarray) and values.dtype.kind in "OSU":  # text that was looked at
        return onnx.numpy_helper.from_array(values.astype(object), tensor.name)
    if kept is None or not isinstance(values, np.ndarray) or tensor.export_dtype != values.dtype:
        return OnnxExporter.export_tensor_proto(tensor)
    tensor.values = kept.keep(values)
    return kept.tensor(tensor.name, tensor.values) or OnnxExporter.export_tensor_proto(tensor)


def _known(model: Model) -> list[Tensor]:
    """Shapes worth writing down; none where a subgraph may contradict them.

    A branch of an If that is never taken need not fit the shapes its neighbours have.
    """
    nested = any(path for _, path in model.walk())
    return [] if nested else skeleton.typed(model.graph)


def _output_info(tensor: Tensor) -> onnx.ValueInfoProto:
    return OnnxExporter.export_value_info_proto(tensor, tensor.dtype is not None)


def node_proto(node: Node) -> onnx.NodeProto:
    """A node as ONNX, by itself."""
    return protos.node_proto(node)


def _node(model: Model, node: Node) -> onnx.NodeProto:
    proto = node_proto(node)
    meta = model.meta(node)
    if meta:
        proto.doc_string = meta.doc_string
        for key, text in meta.metadata:
            proto.metadata_props.add(key=key, value=text)
    return proto


def _opsets(model: Model) -> list[onnx.OperatorSetIdProto]:
    used = {node.domain or "" for node, _ in model.walk()}
    others = {o.domain: o.version for o in model.graph.import_domains or ()}
    others |= {d: 1 for d in used if d not in others and d not in query.STANDARD_DOMAINS}
    imports = [helper.make_opsetid("", model.opset)]
    domains = sorted(d for d in others if d not in query.STANDARD_DOMAINS)
    return imports + [helper.make_opsetid(d, others[d]) for d in domains]
