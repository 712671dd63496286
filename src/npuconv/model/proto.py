"""Conversion between ONNX protos and graph-surgeon's nodes and tensors, and walks over protos.

The results equal the results of graph-surgeon's importer and exporter, several times faster: their
constructors go through every list again for each of its elements, and their helpers copy
every part and look up the type of every attribute again. Rare parts (subgraphs, tensors as
attributes, functions) are still left to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import onnx
from google.protobuf.message import Message
from onnx import AttributeProto, helper, numpy_helper
from onnx_graphsurgeon.exporters.onnx_exporter import OnnxExporter, dtype_to_onnx
from onnx_graphsurgeon.importers.onnx_importer import OnnxImporter
from onnx_graphsurgeon.ir.tensor import LazyValues
from onnx_graphsurgeon.util.misc import SynchronizedList

from npuconv.model import query
from npuconv.model.surgeon import Constant, Graph, Node, Tensor, Variable

Dims = tuple[int | str | None, ...]
_Tensors = dict[str, Tensor]  # by name
_RAW_KINDS = "biuf"  # of numpy types whose bytes are those of ONNX's raw_data


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the tensors that a node reads, including tensors that its subgraphs capture."""
    yield from filter(None, node.input)
    for graph in inner_graphs(node):
        local = {t.name for t in (*graph.input, *graph.initializer)}
        local |= {name for inner in graph.node for name in inner.output}
        for inner in graph.node:
            yield from (name for name in reads(inner) if name not in local)
        yield from (output.name for output in graph.output if output.name not in local)


class Links:
    """Producers, consumers and constants of the tensors of a graph, by name."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.producers = {name: node for node in graph.node for name in node.output if name}
        self.consumers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self.consumers.setdefault(name, []).append(node)
        self._constants = {tensor.name: tensor for tensor in graph.initializer}

    def constant(self, name: str) -> np.ndarray | None:
        """Return the value of an initializer; None for any other tensor."""
        return numpy_helper.to_array(self._constants[name]) if name in self._constants else None

    def sole_consumer(self, name: str, op: str = "") -> onnx.NodeProto | None:
        """Return the only node that reads a tensor, of one operator if given; else None."""
        nodes = [node for node in self.consumers.get(name, []) if op in ("", node.op_type)]
        return nodes[0] if len(nodes) == 1 else None


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """Return the attributes of a node, texts decoded."""
    values = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return {k: v.decode() if isinstance(v, bytes) else v for k, v in values.items()}


def all_names(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield every name of a tensor in a graph and its subgraphs."""
    yield from (t.name for t in graph.initializer)
    yield from (v.name for v in (*graph.input, *graph.output, *graph.value_info))
    for node in graph.node:
        yield from (*node.input, *node.output)
        for inner in inner_graphs(node):
            yield from all_names(inner)


def inner_graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs that the attributes of a node hold."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes and the nodes of their subgraphs."""
    for node in nodes:
        yield node
        for graph in inner_graphs(node):
            yield from all_nodes(graph.node)


def all_graphs(graph: onnx.GraphProto, depth: int = 0) -> Iterator[tuple[onnx.GraphProto, int]]:
    """Yield a graph and all graphs inside of it with their depth of nesting."""
    yield graph, depth
    for node in graph.node:
        for inner in inner_graphs(node):
            yield from all_graphs(inner, depth + 1)


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
            continue  # said once more, or otherwise: the interface of the model is what counts
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


def node_proto(node: Node) -> onnx.NodeProto:
    """Return a node as a proto."""
    proto = onnx.NodeProto()
    write_node(node, proto)
    return proto


def write_node(node: Node, into: onnx.NodeProto, attrs: Mapping[str, Any] | None = None) -> None:
    """Write a node into an empty proto, with other attributes if ``attrs`` are given."""
    into.op_type = node.op
    into.input.extend([t.name for t in node.inputs])
    into.output.extend([t.name for t in node.outputs])
    if node.name:
        into.name = node.name
    if node.domain is not None:
        into.domain = node.domain
    for key, value in (node.attrs if attrs is None else attrs).items():
        _write_attribute(key, value, into.attribute.add())


class NodeCopy(NamedTuple):
    """A cheap copy of a node, for nodes of which few become protos.

    Attributes are numbers, strings and tuples of int; all others are protos.
    """

    op: str
    name: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, Any]

    def write(self, into: onnx.NodeProto, prefix: str = "") -> None:
        """Write the node into an empty proto, with a prefix to all names."""
        into.op_type, into.name, into.domain = self.op, prefix + self.name, self.domain
        into.input.extend([prefix + name if name else "" for name in self.inputs])
        into.output.extend([prefix + name if name else "" for name in self.outputs])
        for key, value in self.attrs.items():
            _write_attribute(key, value, into.attribute.add())


def copy_node(node: Node) -> NodeCopy:
    """Return a copy of the node; later changes of the node do not affect it."""
    inputs, outputs = [t.name for t in node.inputs], [t.name for t in node.outputs]
    attrs = {key: _freeze_attribute(key, value) for key, value in node.attrs.items()}
    return NodeCopy(node.op, node.name, node.domain or "", tuple(inputs), tuple(outputs), attrs)


def _freeze_attribute(name: str, value: Any) -> Any:
    kind = type(value)
    if kind is list and set(map(type, value)) == {int}:
        return tuple(value)
    if kind in (int, float, str):
        return value
    proto = AttributeProto()
    _write_attribute(name, value, proto)
    return proto


def _write_attribute(name: str, value: Any, into: AttributeProto) -> None:
    kind = type(value)
    if kind is int:
        into.name, into.i, into.type = name, value, AttributeProto.INT
    elif kind is AttributeProto:
        into.CopyFrom(value)
    elif kind in (list, tuple) and set(map(type, value)) <= {int}:
        # An empty list has no type; empty lists of ONNX's own operators are of integers.
        into.name, into.type = name, AttributeProto.INTS
        into.ints.extend(value)
    elif kind is float:
        into.name, into.f, into.type = name, value, AttributeProto.FLOAT
    elif kind is str:
        into.name, into.s, into.type = name, value.encode(), AttributeProto.STRING
    else:
        # The exporter gives a tensor its name, and the tensor may be the caller's own.
        copy = deepcopy(value) if isinstance(value, Message | Constant) else value
        into.CopyFrom(OnnxExporter.export_attributes({name: copy})[0])


class TensorType(NamedTuple):
    """Type and shape of a tensor; None where they are unknown."""

    dtype: Any = None
    dims: Dims | None = None


class Types:
    """Types of tensors as protos, each made once: many tensors have the same."""

    def __init__(self) -> None:
        self._codes: dict[Any, int] = {}
        self._types: dict[Any, onnx.TypeProto] = {}
        self._found: dict[bytes, TensorType] = {}

    def read(self, info: onnx.ValueInfoProto) -> TensorType:
        """Return type and shape of a tensor; both unknown for a sequence or optional."""
        if not info.type.HasField("tensor_type"):
            return TensorType()
        key = info.type.SerializeToString()
        if key not in self._found:
            tensor = OnnxImporter.import_tensor(info)
            self._found[key] = TensorType(tensor.dtype, query.shape(tensor))
        return self._found[key]

    def code(self, dtype: Any) -> int:
        """Return ONNX's number of an element type."""
        if dtype not in self._codes:
            self._codes[dtype] = int(dtype_to_onnx(dtype))
        return self._codes[dtype]

    def write(self, tensor: Tensor, into: onnx.ValueInfoProto) -> None:
        """Write the name, and the type and shape if known, of a tensor."""
        into.name = tensor.name
        if tensor.dtype is not None:
            into.type.CopyFrom(self.proto(tensor.dtype, query.shape(tensor)))

    def proto(self, dtype: Any, dims: Dims | None) -> onnx.TypeProto:
        """Return the shared proto of a type and shape; copy it before use."""
        key = (dtype, dims)
        if key not in self._types:
            self._types[key] = helper.make_tensor_type_proto(self.code(dtype), dims)
        return self._types[key]

    def write_constant(self, tensor: Constant, into: onnx.TensorProto) -> None:
        """Write a constant with its values."""
        # Reading ``values`` loads them, and the exporter writes only unloaded strings.
        if is_packed(tensor.dtype):  # the exporter takes a byte for each element
            into.CopyFrom(numpy_helper.from_array(tensor.values, tensor.name))
            return
        is_raw = getattr(tensor.dtype, "kind", "") in _RAW_KINDS
        values = tensor.values if is_raw else None
        if values is None or tensor.export_dtype != values.dtype:
            into.CopyFrom(OnnxExporter.export_tensor_proto(tensor))
            return
        into.name, into.data_type = tensor.name, self.code(values.dtype)
        into.dims.extend(values.shape)
        into.raw_data = values.tobytes()


def is_packed(dtype: Any) -> bool:
    """Return whether ONNX stores several elements of a type in a byte."""
    return getattr(dtype, "name", "") in ("int4", "uint4", "int2", "uint2", "float4_e2m1fn")
