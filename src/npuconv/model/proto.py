"""Walks over ONNX protos, and protos of graph-surgeon's nodes and tensors.

Protos equal the results of graph-surgeon's exporter, several times faster: its helpers copy every
part and look up the type of every attribute again. Rare parts (subgraphs) are still left to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx_graphsurgeon.exporters.onnx_exporter import OnnxExporter, dtype_to_onnx
from onnx_graphsurgeon.importers.onnx_importer import OnnxImporter

from npuconv.model import query, store
from npuconv.model.surgeon import Constant, Node, Tensor

Dims = tuple[int | str | None, ...]


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the tensors that a node reads, including tensors that its subgraphs capture."""
    yield from filter(None, node.input)
    for graph in inner_graphs(node):
        yield from captured_names(graph)


def captured_names(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names that a body reads from the scopes around it."""
    local = {t.name for t in (*graph.input, *graph.initializer)}
    local |= {name for node in graph.node for name in node.output}
    for node in graph.node:
        yield from (name for name in reads(node) if name not in local)
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


def metadata_of(model: onnx.ModelProto) -> dict[str, str]:
    """Return the metadata of a model, by key."""
    return {entry.key: entry.value for entry in model.metadata_props}


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
    """A cheap copy of a node; few copies become protos.

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
    elif isinstance(
        tensor := getattr(getattr(value, "_values", None), "tensor", None), TensorProto
    ):
        # The exporter would give the tensor its name, and it may be the caller's own.
        into.name, into.type = name, AttributeProto.TENSOR
        into.t.CopyFrom(tensor)
        into.t.name = value.name
    else:
        into.CopyFrom(OnnxExporter.export_attributes({name: value})[0])


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
        is_raw = getattr(tensor.dtype, "kind", "") in store.PLAIN_KINDS
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
