"""A proto as a graph, fast: what ``protos`` is for writing.

The same graph as graph-surgeon's importer makes, whose constructors go through every list
again for each of its elements: half of the time to load a graph of thousands of nodes. What
is rare (subgraphs, tensors as attributes, functions) is still read by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import onnx
from onnx import AttributeProto
from onnx_graphsurgeon.importers.onnx_importer import OnnxImporter
from onnx_graphsurgeon.ir.tensor import LazyValues
from onnx_graphsurgeon.util.misc import SynchronizedList

from npuconv.model import query
from npuconv.model.types import Constant, Graph, Node, Tensor, Variable

_Tensors = dict[str, Tensor]  # by name


def import_graph(proto: onnx.ModelProto) -> Graph:
    """The graph of a model without sparse initializers.

    Args:
        proto: well formed, as ``verify.check_proto`` has it.

    Returns:
        Nodes in the order of the proto; values are loaded when they are first asked for.
    """
    source = _own(proto.graph)
    tensors = _known(source)
    initializers = {tensor.name for tensor in source.initializer}
    inputs = [_tensor(info, tensors) for info in source.input if info.name not in initializers]
    outputs = [_tensor(info, tensors) for info in source.output]
    opset, domains = OnnxImporter.get_opset(proto), OnnxImporter.get_import_domains(proto)
    return Graph(
        nodes=[_node(node, tensors, opset, domains) for node in source.node],
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


def _own(graph: onnx.GraphProto) -> onnx.GraphProto:
    """A copy where it has branches: constants in these are given names when they are written."""
    if not any(part.HasField("g") for node in graph.node for part in node.attribute):
        return graph
    made = onnx.GraphProto()
    made.CopyFrom(graph)
    return made


def _known(source: onnx.GraphProto) -> _Tensors:
    """Constants, and tensors whose types the model states; of one stated twice, what is known."""
    tensors: _Tensors = {}
    for initializer in source.initializer:
        if initializer.name not in tensors:
            tensors[initializer.name] = _constant(initializer)
    for info in source.value_info:
        known = tensors.get(info.name)
        stated = OnnxImporter.import_tensor(info)
        if known is None:
            tensors[info.name] = stated
        elif not query.is_constant(known):
            known.dtype, known.shape = known.dtype or stated.dtype, known.shape or stated.shape
    return tensors


def _tensor(info: onnx.ValueInfoProto, tensors: _Tensors) -> Tensor:
    if info.name not in tensors:
        tensors[info.name] = OnnxImporter.import_tensor(info)
    return tensors[info.name]


def _constant(proto: onnx.TensorProto) -> Constant:
    made = Constant.__new__(Constant)
    # Past ``__setattr__``, which looks first for lists that are not there yet.
    part = made.__dict__
    part["name"], part["_values"], part["_export_dtype"] = proto.name, LazyValues(proto), None
    part["data_location"] = int(proto.data_location) if proto.HasField("data_location") else None
    part["inputs"], part["outputs"] = _list(made, "outputs"), _list(made, "inputs")
    return made


def _variable(name: str) -> Variable:
    made = Variable.__new__(Variable)
    part = made.__dict__
    part["name"], part["dtype"], part["shape"], part["type"] = name, None, None, "tensor_type"
    part["inputs"], part["outputs"] = _list(made, "outputs"), _list(made, "inputs")
    return made


def _list(owner: Tensor | Node, field: str, items: Iterable[Any] = ()) -> Any:
    """A list that graph-surgeon keeps in step with ``field`` of each of its elements."""
    made = SynchronizedList.__new__(SynchronizedList)
    list.extend(made, items)
    made.parent_obj, made.field_name = owner, field
    return made


def _node(proto: onnx.NodeProto, tensors: _Tensors, opset: int, domains: Any) -> Node:
    made = Node.__new__(Node)
    part = made.__dict__
    part["op"], part["name"] = proto.op_type, proto.name
    part["domain"] = proto.domain if proto.HasField("domain") else None
    part["attrs"] = _plain(proto)
    if part["attrs"] is None:
        found = OnnxImporter.import_attributes(proto.attribute, {}, tensors, opset, domains)
        part["attrs"] = dict(found)
    inputs = [tensors.get(name) or _made(name, tensors) for name in proto.input]
    outputs = [tensors.get(name) or _made(name, tensors) for name in proto.output]
    part["inputs"], part["outputs"] = _list(made, "outputs", inputs), _list(made, "inputs", outputs)
    for tensor in inputs:
        list.append(tensor.outputs, made)
    for tensor in outputs:
        list.append(tensor.inputs, made)
    return made


def _made(name: str, tensors: _Tensors) -> Tensor:
    """A tensor nothing is known of yet; one without a name stands for itself."""
    found = _variable(name)
    if name:
        tensors[name] = found
    return found


_PLAIN: dict[int, Any] = {
    AttributeProto.INT: lambda a: a.i,
    AttributeProto.INTS: lambda a: list(a.ints),
    AttributeProto.FLOAT: lambda a: a.f,
    AttributeProto.FLOATS: lambda a: list(a.floats),
    AttributeProto.STRING: lambda a: a.s.decode(),
}


def _plain(proto: onnx.NodeProto) -> dict[str, Any] | None:
    """The attributes by name; None where one is neither numbers nor text."""
    found = {}
    for attribute in proto.attribute:
        read = _PLAIN.get(attribute.type)
        if read is None or attribute.ref_attr_name:
            return None
        found[attribute.name] = read(attribute)
    return found
