"""Nodes and tensors as protos, fast: a graph of thousands of nodes is written many times.

The same protos as graph-surgeon's exporter makes by way of ONNX's helpers, which copy every
part several times and look for the type of every attribute anew.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

import onnx
from google.protobuf.message import Message
from onnx import AttributeProto, helper
from onnx_graphsurgeon.exporters.onnx_exporter import OnnxExporter, dtype_to_onnx
from onnx_graphsurgeon.importers.onnx_importer import OnnxImporter

from npuconv.model import query
from npuconv.model.types import Constant, Node, Tensor

Dims = tuple[int | str | None, ...]

_PLAIN = "biuf"  # kinds of numpy types whose bytes are those of ONNX's raw_data


def node_proto(node: Node) -> onnx.NodeProto:
    """A node as ONNX, by itself."""
    proto = onnx.NodeProto()
    write_node(node, proto)
    return proto


def write_node(node: Node, into: onnx.NodeProto) -> None:
    """Write a node into an empty proto."""
    into.op_type = node.op
    into.input.extend([t.name for t in node.inputs])
    into.output.extend([t.name for t in node.outputs])
    if node.name:
        into.name = node.name
    if node.domain is not None:
        into.domain = node.domain
    for key, value in node.attrs.items():
        _write_attribute(key, value, into.attribute.add())


class Copy(NamedTuple):
    """A node as it stood, taken down fast: only what is run in the end becomes a proto.

    Attributes are numbers, strings and tuples of int as they are, all others protos.
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


def copy_of(node: Node) -> Copy:
    """Return a copy of the node as it is now; later changes of the node do not affect it."""
    inputs, outputs = [t.name for t in node.inputs], [t.name for t in node.outputs]
    attrs = {key: _frozen(key, value) for key, value in node.attrs.items()}
    return Copy(node.op, node.name, node.domain or "", tuple(inputs), tuple(outputs), attrs)


def _frozen(name: str, value: Any) -> Any:
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
        # Of what, an empty list does not say: those of ONNX's own operators are of integers.
        into.name, into.type = name, AttributeProto.INTS
        into.ints.extend(value)
    elif kind is float:
        into.name, into.f, into.type = name, value, AttributeProto.FLOAT
    elif kind is str:
        into.name, into.s, into.type = name, value.encode(), AttributeProto.STRING
    else:
        # The exporter gives a tensor its name, and the tensor may be the caller's own.
        own = deepcopy(value) if isinstance(value, Message | Constant) else value
        into.CopyFrom(OnnxExporter.export_attributes({name: own})[0])


@dataclass(frozen=True)
class Found:
    """A type and shape as a proto has them."""

    dtype: Any = None
    shape: list[int | str | None] | None = None
    dims: Dims | None = None  # what of the shape is known

    @property
    def exact(self) -> bool:
        """Return whether the shape is known as written: no 0 that stands for "not known"."""
        return self.shape is not None and self.dims == tuple(self.shape)


class Types:
    """Types of tensors as protos. Many tensors have the same, so each is made once."""

    def __init__(self) -> None:
        self._codes: dict[Any, int] = {}
        self._types: dict[Any, onnx.TypeProto] = {}
        self._found: dict[bytes, Found] = {}

    def read(self, info: onnx.ValueInfoProto) -> Found:
        """Type and shape of a tensor; nothing of what is no tensor."""
        if not info.type.HasField("tensor_type"):
            return Found()
        key = info.type.SerializeToString()
        if key not in self._found:
            tensor = OnnxImporter.import_tensor(info)
            self._found[key] = Found(tensor.dtype, tensor.shape, query.shape(tensor))
        return self._found[key]

    def code(self, dtype: Any) -> int:
        """ONNX's number of an element type."""
        if dtype not in self._codes:
            self._codes[dtype] = int(dtype_to_onnx(dtype))
        return self._codes[dtype]

    def write(self, tensor: Tensor, into: onnx.ValueInfoProto) -> None:
        """Write name, type and shape of a tensor, as far as they are known."""
        into.name = tensor.name
        if tensor.dtype is not None:
            into.type.CopyFrom(self.proto(tensor.dtype, query.shape(tensor)))

    def proto(self, dtype: Any, dims: Dims | None) -> onnx.TypeProto:
        """The proto of a type and shape, to be copied."""
        key = (dtype, dims)
        if key not in self._types:
            self._types[key] = helper.make_tensor_type_proto(self.code(dtype), dims)
        return self._types[key]

    def write_constant(self, tensor: Constant, into: onnx.TensorProto) -> None:
        """Write a constant with its values."""
        # Values are loaded when they are looked at; the exporter writes strings unloaded only.
        plain = getattr(tensor.dtype, "kind", "") in _PLAIN
        values = tensor.values if plain else None
        if values is None or tensor.export_dtype != values.dtype:
            into.CopyFrom(OnnxExporter.export_tensor_proto(tensor))
            return
        into.name, into.data_type = tensor.name, self.code(values.dtype)
        into.dims.extend(values.shape)
        into.raw_data = values.tobytes()
