"""Names that a graph uses, those in its subgraphs included."""

from __future__ import annotations

from collections.abc import Iterator

import onnx


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Tensors that a node reads, itself or in its subgraphs."""
    yield from node.input
    for graph in _subgraphs(node):
        yield from (output.name for output in graph.output)
        for inner in graph.node:
            yield from reads(inner)


def all_names(graph: onnx.GraphProto) -> Iterator[str]:
    """Every name of a tensor."""
    yield from (t.name for t in graph.initializer)
    yield from (v.name for v in (*graph.input, *graph.output, *graph.value_info))
    for node in graph.node:
        yield from (*node.input, *node.output)
        for inner in _subgraphs(node):
            yield from all_names(inner)


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs
