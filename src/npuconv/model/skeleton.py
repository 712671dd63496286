"""Input of shape inference: a graph, or part of one, without its weights."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

import onnx
from onnx import helper

from npuconv.model import query
from npuconv.model.core import Model, subgraphs
from npuconv.model.plain import is_misread, plain
from npuconv.model.plain import opset as plain_opset
from npuconv.model.protos import Types, write_node
from npuconv.model.types import Graph, Node, Tensor

# Shapes, axes, pads and scales are short; anything longer is data, not a shape.
SMALL = 512


def skeleton(
    model: Model, nodes: Sequence[Node] | None = None, settled: Collection[int] = ()
) -> onnx.ModelProto:
    """The model with long constants turned into inputs: same shapes, no weights.

    Args:
        model: the model.
        nodes: which of its nodes, in order; all of them by default. What they read and do
            not make is an input.
        settled: ids of nodes that are left out; what they make is an input as well.
    """
    nodes = model.nodes() if nodes is None else nodes
    proto, types = onnx.ModelProto(), Types()
    out = proto.graph
    out.name = "skeleton"
    for tensor in _fed(model, nodes):
        types.write(tensor, out.input.add())
    _write_constants(nodes, types, out)
    for node in nodes:
        if id(node) not in settled:
            _write_plainly(node, model.opset, out)
            continue
        for tensor in node.outputs:
            types.write(tensor, out.input.add())
    _write_types(model, nodes, settled, types, out)
    proto.opset_import.append(helper.make_opsetid("", plain_opset(model.opset, nodes)))
    others = model.graph.import_domains or ()
    proto.opset_import.extend([o for o in others if o.domain not in query.STANDARD_DOMAINS])
    proto.ir_version = max(model.header.ir_version, 4)
    return proto


def _fed(model: Model, nodes: Sequence[Node]) -> list[Tensor]:
    """The inputs of the graph, and what the nodes read from nodes that are left out."""
    fed = {t.name: t for t in model.graph.inputs}
    if len(nodes) < len(model.graph.nodes):
        made = {id(node) for node in nodes}
        read = (t for node in nodes for t in node.inputs if t.inputs)
        fed.update((t.name, t) for t in read if id(t.inputs[0]) not in made)
    return list(fed.values())


def _write_constants(nodes: Iterable[Node], types: Types, out: onnx.GraphProto) -> None:
    for constant in _constants(nodes):
        if math.prod(constant.shape) > SMALL:
            types.write(constant, out.input.add())
        else:
            types.write_constant(constant, out.initializer.add())


def _write_types(
    model: Model,
    nodes: Sequence[Node],
    settled: Collection[int],
    types: Types,
    out: onnx.GraphProto,
) -> None:
    made = {id(t) for node in nodes for t in node.outputs}
    whole = len(nodes) == len(model.graph.nodes)
    for tensor in model.graph.outputs:
        if whole or id(tensor) in made:
            types.write(tensor, out.output.add())
    for tensor in typed(model.graph, nodes):
        if not tensor.inputs or id(tensor.inputs[0]) not in settled:
            types.write(tensor, out.value_info.add())


def _write_plainly(node: Node, source: int, out: onnx.GraphProto) -> None:
    write_node(node, out.node.add())
    if is_misread(node, source):
        out.node.extend(plain(node, out.node.pop(), source))


def typed(graph: Graph, nodes: Iterable[Node] | None = None) -> list[Tensor]:
    """Tensors made inside the graph whose type and shape are known, outputs left out."""
    outputs = {id(t) for t in graph.outputs}
    return [
        t
        for n in (graph.nodes if nodes is None else nodes)
        for t in n.outputs
        if t.name and t.dtype is not None and t.shape is not None and id(t) not in outputs
    ]


def value_info(tensor: Tensor) -> onnx.ValueInfoProto:
    """Name, type and shape of a tensor, as far as they are known."""
    info = onnx.ValueInfoProto()
    Types().write(tensor, info)
    return info


def constants(graph: Graph) -> list[Tensor]:
    """Every constant a node of the graph reads, also from inside subgraphs, once."""
    return _constants(graph.nodes)


def _constants(nodes: Iterable[Node]) -> list[Tensor]:
    found: dict[str, Tensor] = {}
    for node in nodes:
        for tensor in _read_by(node):
            if query.is_constant(tensor):
                found.setdefault(tensor.name, tensor)
    return list(found.values())


def _read_by(node: Node) -> list[Tensor]:
    read = list(node.inputs)
    for _, inner in subgraphs(node):
        own = {id(t) for n in inner.nodes for t in n.outputs}
        read += [t for n in inner.nodes for t in _read_by(n) if id(t) not in own]
    return read
