"""Import of a checked proto as a Model: functions inlined, sparse tensors dense, origins kept."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from google.protobuf.message import EncodeError
from onnx_graphsurgeon.importers.onnx_importer import OnnxImporter, import_onnx

from npuconv.errors import ModelError
from npuconv.model import Model, query, store
from npuconv.model.core import Header, NodeMeta, subgraphs
from npuconv.model.proto import all_names, all_nodes, captured_names, inner_graphs
from npuconv.model.source import read_source
from npuconv.model.surgeon import Graph
from npuconv.model.validate import check_proto

MAX_OPSET = onnx.defs.onnx_opset_version()
_DEFAULTS_ARE_OPTIONAL = 4  # IR version; before, every initializer had to be an input
_WITH_PARAMETERS = (*query.CONVOLUTIONS, "BatchNormalization", "Gemm", "LSTM", "GRU", "RNN")


def import_model(
    proto: onnx.ModelProto, name: str, sha256: str, weights: store.Store | None
) -> Model:
    """Return the Model of a proto, which is not changed.

    Args:
        proto: has passed ``untrusted.check``.
        name: name of the model.
        sha256: digest of its file.
        weights: store of its large weights, if they are in files.

    Raises:
        ModelError: the graph contradicts itself, or graph-surgeon cannot read it.
    """
    if not proto.HasField("graph"):
        raise ModelError(f"{name}: is not an ONNX model (it has no graph)")
    if not proto.graph.node:
        raise ModelError(f"{name}: the graph has no nodes")
    opset = standard_opset(proto)
    if opset is not None and opset < 1:
        raise ModelError(f"{name}: opset {opset} does not exist")
    if opset is not None and opset > MAX_OPSET:
        text = f"{name}: opset {opset} is newer than this onnx package knows ({MAX_OPSET})"
        raise ModelError(text, hint="upgrade the onnx package")
    check_proto(proto, name)
    proto = dense(inlined(proto))
    try:
        graph = import_graph(proto)
    except Exception as error:  # graph-surgeon has no common exception
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(f"{name}: cannot be read as a graph: {reason}") from None
    # IR 1 and 2 had no opset_import: they mean opset 1.
    graph.opset = standard_opset(proto) or 1
    model = Model(graph, _header(proto), name, sha256, store=weights)
    for tensor in graph.tensors().values() if weights is not None else ():
        initializer = getattr(getattr(tensor, "_values", None), "tensor", None)
        if isinstance(initializer, onnx.TensorProto) and store.is_stored(initializer):
            tensor.values, tensor.data_location = store.array(initializer), None
    _register(model, graph, list(proto.graph.node), {})
    return model


def standard_opset(proto: onnx.ModelProto) -> int | None:
    """Return the version of the standard domain that a model states, if it does."""
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
    """Register origin, notes and source of every node; an unnamed one has its operator's name."""
    for node, proto in zip(graph.nodes, protos, strict=True):
        number = counts.get(node.op, 0)
        counts[node.op] = number + 1
        origin = node.name or f"{node.op}_{number}"
        notes = _entries(proto.metadata_props)
        model.register(node, NodeMeta((origin,), proto.doc_string, notes))
        if (code := read_source(origin, proto.metadata_props)) is not None:
            model.sources[origin] = code
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
    # Positions in the flat array, or a row of coordinates for each value.
    array[np.unravel_index(where, array.shape) if where.ndim == 1 else tuple(where.T)] = values
    return onnx.numpy_helper.from_array(array, sparse.values.name)


def import_graph(proto: onnx.ModelProto) -> Graph:
    """Return the graph of a model without sparse initializers.

    Args:
        proto: has passed ``validate.check_proto``.

    Returns:
        Nodes in the order of the proto; values are loaded on first use.
    """
    copy = proto
    if any(part.HasField("g") for node in proto.graph.node for part in node.attribute):
        copy = onnx.ModelProto()  # the exporter names the constants in branches
        copy.CopyFrom(proto)
        _separate_scopes(copy.graph, set(), {}, set(all_names(copy.graph)), set())
    graph = import_onnx(copy)
    for tensor, info in zip(graph.outputs, proto.graph.output, strict=True):
        is_stated = info.type.tensor_type.HasField("shape")
        if is_stated and tensor.inputs:  # a value_info may contradict the interface of the model
            stated = OnnxImporter.import_tensor(info)
            tensor.dtype, tensor.shape = stated.dtype, stated.shape
    return graph


def _separate_scopes(
    graph: onnx.GraphProto,
    outer: set[str],
    renamed: dict[str, str],
    used: set[str],
    captured: set[str],
) -> None:
    """Rename tensors of bodies that have the name of a tensor around them.

    An initializer of such a name keeps it where another body of the same node reads the tensor
    around: onnxruntime then hands that tensor to both.

    Args:
        graph: the graph, or a body; changed.
        outer: names of the scopes around it.
        renamed: new names in these scopes.
        used: names that no new tensor may have.
        captured: names that bodies of the same node read from the scopes around them.
    """
    defined = {info.name for info in graph.initializer} - (outer & captured)
    defined |= {info.name for info in graph.input}
    defined |= {name for node in graph.node for name in node.output if name}
    renamed = {old: new for old, new in renamed.items() if old not in defined}
    for name in sorted(defined & outer):
        renamed[name] = next(new for n in count(1) if (new := f"{name}/{n}") not in used)
        used.add(renamed[name])
    for info in (*graph.initializer, *graph.input, *graph.output, *graph.value_info):
        info.name = renamed.get(info.name, info.name)
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [renamed.get(name, name) for name in names]
        captured = {name for inner in inner_graphs(node) for name in captured_names(inner)}
        for inner in inner_graphs(node):
            _separate_scopes(inner, outer | defined, renamed, used, captured)
