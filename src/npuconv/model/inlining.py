"""Local functions written out where they are called: what they hold is part of the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
import onnx.inliner
from google.protobuf.message import EncodeError


def inlined(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The same model without local functions, as far as ONNX can write them out.

    A function of another opset than the model's stays, as an operator that only the host knows.

    Args:
        proto: well formed, without functions that call themselves; not changed.
    """
    if not proto.functions:
        return proto
    try:
        return onnx.inliner.inline_local_functions(_with_defaults(proto))
    except EncodeError:  # over 2 GB, which this way does not take
        return proto


def _with_defaults(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Write a function's default attributes into its calls: the inliner of ONNX drops them."""
    defaults = {(f.domain, f.name): f.attribute_proto for f in proto.functions}
    if not any(defaults.values()):
        return proto
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    for nodes in (copy.graph.node, *(function.node for function in copy.functions)):
        for node in _nested(nodes):
            given = {attribute.name for attribute in node.attribute}
            missing = defaults.get((node.domain, node.op_type), ())
            node.attribute.extend(one for one in missing if one.name not in given)
    return copy


def _nested(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Nodes and those of their subgraphs."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nested(graph.node)
