"""Checks on an untrusted model, before any later step reads it.

They cover sizes, nesting, text, tensors and the places of external data: everything that
could make a later step allocate, recurse or read without end. No check is quadratic, and
none allocates a size only because the model claims it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import onnx

from npuconv import limits
from npuconv.errors import ModelError
from npuconv.model import claims, doubling, outside_data

# Windows, in elements. Sums and products of numbers below 2 to the 31 fit into 64 bits.
_EXTENTS = frozenset(
    {"strides", "dilations", "kernel_shape", "pads", "output_padding", "output_shape", "group"}
)
_MOST = 2**31

_Key = tuple[str, str]  # domain and name of a function
Nodes = Iterable[onnx.NodeProto]
Graphs = Sequence[tuple[onnx.GraphProto, int]]  # and how deep they lie


def check(
    proto: onnx.ModelProto, name: str, folder: Path | None = None, own: Path | None = None
) -> None:
    """Refuse a model that asks for too much, or says what cannot be.

    Args:
        proto: as it was parsed.
        name: for messages.
        folder: of the model's file; its external data must lie there.
        own: the model's file, where large tensors have been left in it.

    Raises:
        ModelError: which limit, or what is wrong.
    """
    graphs = list(_graphs(proto.graph))
    try:
        _check_text(proto, graphs)
        _check_size(proto, graphs, name)
        for graph, depth in graphs:
            _check_graph(graph, name, inside=depth > 0)
        for function in proto.functions:
            for tensor in _in_nodes(function.node):
                claims.check_tensor(tensor, name)
            _check_attributes(function.node, name, inside=True)
    except UnicodeDecodeError:
        raise ModelError(f"{name}: holds a name that is not UTF-8 text") from None
    doubling.check(proto, name)
    if folder is not None:
        outside_data.check(_tensors(proto, graphs), name, folder, own)


def _tensors(proto: onnx.ModelProto, graphs: Graphs) -> Iterator[onnx.TensorProto]:
    """Every tensor of a model that may have its data in a file."""
    for graph, _ in graphs:
        yield from _in_graph(graph)
    for function in proto.functions:
        yield from _in_nodes(function.node)


def _check_text(proto: onnx.ModelProto, graphs: Graphs) -> None:
    """Names are handed on as text; protobuf lets any bytes pass for it.

    Raises:
        UnicodeDecodeError: some are not.
    """
    names: list[str | bytes] = [proto.producer_name, proto.producer_version, proto.domain]
    names += [proto.doc_string, *(o.domain for o in proto.opset_import)]
    names += [text for entry in proto.metadata_props for text in (entry.key, entry.value)]
    for graph, _ in graphs:
        infos = (*graph.input, *graph.output, *graph.value_info)
        names += [graph.name, graph.doc_string, *(info.name for info in infos)]
        names += [d.dim_param for i in infos for d in i.type.tensor_type.shape.dim]
        names += [tensor.name for tensor in graph.initializer]
        names += _of_nodes(graph.node)
    for function in proto.functions:
        names += [function.name, function.domain, *function.input, *function.output]
        names += _of_nodes(function.node)
    if bytes not in set(map(type, names)):
        return
    for text in names:
        if isinstance(text, bytes):  # protobuf's way to say that it cannot be decoded
            text.decode("utf-8")
            raise UnicodeDecodeError("utf-8", text, 0, 1, "not text")


def _of_nodes(nodes: Nodes) -> list[str | bytes]:
    found: list[str | bytes] = []
    for node in nodes:
        found += (node.name, node.op_type, node.domain, node.doc_string)
        found += node.input
        found += node.output
        found += [attribute.name for attribute in node.attribute]
    return found


def _check_size(proto: onnx.ModelProto, graphs: Graphs, name: str) -> None:
    limit = limits.present()
    depth = max(depth for _, depth in graphs)
    if depth > limit.depth:
        text = f"{name}: has subgraphs {depth} deep, over {limit.depth}"
        raise ModelError(text, hint=limits.hint("depth"))
    count = sum(len(graph.node) for graph, _ in graphs)
    if proto.functions:
        count += _called(proto, graphs, name, limit.nodes)
    if count > limit.nodes:
        text = f"{name}: has {count} nodes, over {limit.nodes}"
        raise ModelError(text, hint=limits.hint("nodes"))


def _held(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _graphs(graph: onnx.GraphProto, depth: int = 0) -> Iterator[tuple[onnx.GraphProto, int]]:
    """A graph and all graphs inside of it, and how deep they lie."""
    yield graph, depth
    for node in graph.node:
        for inner in _held(node):
            yield from _graphs(inner, depth + 1)


def _called(proto: onnx.ModelProto, graphs: Graphs, name: str, most: int) -> int:
    """Return the number of nodes that all function calls expand to.

    Raises:
        ModelError: a function calls itself.
    """
    functions = {(f.domain, f.name): f.node for f in proto.functions}
    calls = {
        key: Counter(key for key in map(_key, n) if key in functions)
        for key, n in functions.items()
    }
    sizes: dict[_Key, int] = {}
    try:
        for key in TopologicalSorter(calls).static_order():
            inside = sum(times * sizes[one] for one, times in calls[key].items())
            sizes[key] = min(len(functions[key]) + inside, most + 1)
    except CycleError as error:
        _, op = min(error.args[1])
        raise ModelError(f"{name}: function {op!r} calls itself") from None
    nodes = (node for graph, _ in graphs for node in graph.node)
    return sum(sizes.get(_key(node), 0) for node in nodes)


def _key(node: onnx.NodeProto) -> _Key:
    return node.domain, node.op_type


def _check_graph(graph: onnx.GraphProto, name: str, inside: bool) -> None:
    for tensor in _in_graph(graph):
        claims.check_tensor(tensor, name)
    for sparse in graph.sparse_initializer:
        claims.check_sparse(sparse, name)
    for info in (*graph.input, *graph.output, *graph.value_info):
        claims.check_info(info, name)
    _check_attributes(graph.node, name, inside)


def _check_attributes(nodes: Nodes, name: str, inside: bool) -> None:
    """Check the attributes of nodes; ``inside``: in a subgraph or function, never checked later."""
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("sparse_tensor"):
                claims.check_sparse(attribute.sparse_tensor, name)
            if fault := _attribute_fault(attribute, inside):
                where = f"{name}: node {node.name or node.op_type!r}"
                raise ModelError(f"{where}: attribute {attribute.name!r} {fault}")


def _attribute_fault(attribute: onnx.AttributeProto, inside: bool) -> str:
    if attribute.ref_attr_name:  # its value comes with the call, whose attributes are looked at
        return "" if inside else "refers to one of a function that is not there"
    if attribute.name in _EXTENTS and not _is_extent((attribute.i, *attribute.ints)):
        shown = claims.shown(attribute.ints or [attribute.i])
        return f"is {shown}: over {_MOST}, beyond any runtime"
    if inside and attribute.type == onnx.AttributeProto.INTS and not attribute.ints:
        return "is an empty list"
    return ""


def _is_extent(values: Iterable[int]) -> bool:
    return all(-_MOST < value < _MOST for value in values)


def _in_graph(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    yield from _in_nodes(graph.node)


def _in_nodes(nodes: Nodes) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
