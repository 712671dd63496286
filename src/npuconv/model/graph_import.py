"""Import of a checked proto as a Model: functions inlined, sparse tensors dense, origins kept.

The result equals the result of graph-surgeon's importer, several times faster: its constructors
go through every list again for each element of the list. Rare parts (subgraphs, tensors
as attributes, functions) are still left to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

import numpy as np
import onnx
import onnx.inliner
from google.protobuf.message import EncodeError
from onnx import AttributeProto
from onnx_graphsurgeon.importers.onnx_importer import OnnxImporter
from onnx_graphsurgeon.ir.tensor import LazyValues
from onnx_graphsurgeon.util.misc import SynchronizedList

from npuconv.errors import ModelError
from npuconv.model import query, store
from npuconv.model.core import Header, Model, NodeMeta, subgraphs
from npuconv.model.proto import all_names, all_nodes, inner_graphs
from npuconv.model.source import read_source
from npuconv.model.surgeon import Constant, Graph, Node, Tensor, Variable

_Tensors = dict[str, Tensor]  # tensors by name
_DEFAULTS_ARE_OPTIONAL = 4  # IR version; before, every initializer had to be an input
_WITH_PARAMETERS = (*query.CONVOLUTIONS, "BatchNormalization", "Gemm", "LSTM", "GRU", "RNN")


def import_model(
    proto: onnx.ModelProto, name: str, sha256: str, weights: store.Store | None
) -> Model:
    """Return the Model of a proto, which is not changed.

    Args:
        proto: has passed ``validate.check_proto``.
        name: name of the model.
        sha256: digest of its file.
        weights: store of its large weights, if they are in files.

    Raises:
        ModelError: graph-surgeon cannot read the graph.
    """
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
    source = _copy_with_separate_scopes(proto.graph)
    tensors = _import_stated_tensors(source)
    initializers = {tensor.name for tensor in source.initializer}
    inputs = [
        _import_tensor(info, tensors) for info in source.input if info.name not in initializers
    ]
    outputs = [_import_tensor(info, tensors) for info in source.output]
    opset, domains = OnnxImporter.get_opset(proto), OnnxImporter.get_import_domains(proto)
    return Graph(
        nodes=[_import_node(node, tensors, opset, domains) for node in source.node],
        inputs=inputs,
        outputs=outputs,
        name=source.name,
        doc_string=source.doc_string,
        producer_name=proto.producer_name,
        producer_version=proto.producer_version,
        opset=opset,
        import_domains=domains,
        functions=[OnnxImporter.import_function(f, opset, domains) for f in proto.functions],
        ir_version=proto.ir_version,
    )


def _copy_with_separate_scopes(graph: onnx.GraphProto) -> onnx.GraphProto:
    """Return a copy of a graph with branches: the exporter names the constants in these."""
    if not any(part.HasField("g") for node in graph.node for part in node.attribute):
        return graph
    copy = onnx.GraphProto()
    copy.CopyFrom(graph)
    _separate_scopes(copy, set(), {}, set(all_names(copy)), set())
    return copy


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
        captured = {name for inner in inner_graphs(node) for name in _captured_names(inner)}
        for inner in inner_graphs(node):
            _separate_scopes(inner, outer | defined, renamed, used, captured)


def _captured_names(graph: onnx.GraphProto) -> set[str]:
    """Return the names that a body reads from the scopes around it."""
    names = {output.name for output in graph.output}
    for node in graph.node:
        names.update(node.input, *(_captured_names(inner) for inner in inner_graphs(node)))
    names -= {info.name for info in (*graph.initializer, *graph.input)}
    return names - {name for node in graph.node for name in node.output}


def _import_stated_tensors(source: onnx.GraphProto) -> _Tensors:
    """Return constants, and tensors with a stated type; two statements complete each other."""
    tensors: _Tensors = {}
    for initializer in source.initializer:
        if initializer.name not in tensors:
            tensors[initializer.name] = _import_constant(initializer)
    output_names = {
        output.name for output in source.output if output.type.tensor_type.HasField("shape")
    }
    for info in source.value_info:
        if info.name in output_names:
            continue  # repeated or contradicting value_info: the interface of the model counts
        tensor = tensors.get(info.name)
        stated = OnnxImporter.import_tensor(info)
        if tensor is None:
            tensors[info.name] = stated
        elif not query.is_constant(tensor):
            tensor.dtype, tensor.shape = tensor.dtype or stated.dtype, tensor.shape or stated.shape
    return tensors


def _import_tensor(info: onnx.ValueInfoProto, tensors: _Tensors) -> Tensor:
    if info.name not in tensors:
        tensors[info.name] = OnnxImporter.import_tensor(info)
    return tensors[info.name]


def _import_constant(proto: onnx.TensorProto) -> Constant:
    constant = Constant.__new__(Constant)
    # Not by ``__setattr__``, which would look for lists that do not exist yet.
    fields = constant.__dict__
    fields["name"], fields["_values"], fields["_export_dtype"] = proto.name, LazyValues(proto), None
    fields["data_location"] = int(proto.data_location) if proto.HasField("data_location") else None
    fields["inputs"], fields["outputs"] = (
        _synchronized_list(constant, "outputs"),
        _synchronized_list(constant, "inputs"),
    )
    return constant


def _synchronized_list(owner: Tensor | Node, field: str, items: Iterable[Any] = ()) -> Any:
    """Return a list that graph-surgeon synchronizes with ``field`` of its elements."""
    result = SynchronizedList.__new__(SynchronizedList)
    list.extend(result, items)
    result.parent_obj, result.field_name = owner, field
    return result


def _import_node(proto: onnx.NodeProto, tensors: _Tensors, opset: int, domains: Any) -> Node:
    node = Node.__new__(Node)
    fields = node.__dict__
    fields["op"], fields["name"] = proto.op_type, proto.name
    fields["domain"] = proto.domain if proto.HasField("domain") else None
    if (attrs := _attributes(proto)) is None:
        attrs = dict(OnnxImporter.import_attributes(proto.attribute, {}, tensors, opset, domains))
    fields["attrs"] = attrs
    inputs = [tensors.get(name) or _add_untyped_tensor(name, tensors) for name in proto.input]
    outputs = [tensors.get(name) or _add_untyped_tensor(name, tensors) for name in proto.output]
    fields["inputs"], fields["outputs"] = (
        _synchronized_list(node, "outputs", inputs),
        _synchronized_list(node, "inputs", outputs),
    )
    for tensor in inputs:
        list.append(tensor.outputs, node)
    for tensor in outputs:
        list.append(tensor.inputs, node)
    return node


def _add_untyped_tensor(name: str, tensors: _Tensors) -> Tensor:
    """Return a new tensor without type; every unnamed tensor is a separate tensor."""
    variable = Variable.__new__(Variable)
    part = variable.__dict__
    part["name"], part["dtype"], part["shape"], part["type"] = name, None, None, "tensor_type"
    part["inputs"], part["outputs"] = (
        _synchronized_list(variable, "outputs"),
        _synchronized_list(variable, "inputs"),
    )
    if name:
        tensors[name] = variable
    return variable


_READERS: dict[int, Any] = {
    AttributeProto.INT: lambda a: a.i,
    AttributeProto.INTS: lambda a: list(a.ints),
    AttributeProto.FLOAT: lambda a: a.f,
    AttributeProto.FLOATS: lambda a: list(a.floats),
    AttributeProto.STRING: lambda a: a.s.decode(),
}


def _attributes(proto: onnx.NodeProto) -> dict[str, Any] | None:
    """Return the attributes by name; None if an attribute is neither numbers nor text."""
    values = {}
    for attribute in proto.attribute:
        read = _READERS.get(attribute.type)
        if read is None or attribute.ref_attr_name:
            return None
        values[attribute.name] = read(attribute)
    return values
