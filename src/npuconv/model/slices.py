"""Shape inference up to a Slice of a tensor of negative extent, where ONNX ends the process.

ONNX does not compare a window with the extent of its input; its Slice takes negative extents for
impossible. onnxruntime infers shapes in the same way, so that it must not load such a model either.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import onnx

from npuconv.errors import ModelError
from npuconv.model import query
from npuconv.model.proto import inner_graphs

_WINDOWS = frozenset({"Conv", "ConvInteger", "QLinearConv", "ConvTranspose", *query.POOLS})


def before_slices(proto: onnx.ModelProto) -> onnx.ModelProto | None:
    """Infer up to each Slice of the result of a window, whose extent may be negative.

    Returns:
        The result where an extent is negative; else None.

    Raises:
        ModelError: an extent in the body of a node is negative, which no rule looks into.
    """
    bare = _without_inner_slices(proto)
    inferred = _infer_to_outer_slices(bare)
    if inferred is not None or bare is proto:
        return inferred
    try:
        inferred = onnx.shape_inference.infer_shapes(bare, data_prop=True)
    except Exception:
        return None
    if _find_negative_extents(inferred.graph):
        return inferred
    for body in _bodies(inferred.graph):
        _refuse_negative(body)
    return None


def _refuse_negative(body: onnx.GraphProto) -> None:
    """Raise ModelError for the first node of a body that makes a tensor of negative extent."""
    negative = _find_negative_extents(body)
    for node in body.node:
        if not negative.isdisjoint(node.output):
            called = f"{node.op_type} {node.name!r}" if node.name else node.op_type
            raise ModelError(
                f"{called}, which makes {node.output[0]!r} in a body of an If, Loop or Scan: a "
                "kernel is larger than what it slides over with its pads, so that nothing is left",
                hint="mend kernel or pads, or take the node out",
            )


def _without_inner_slices(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model without the Slices in bodies, if these may read the result of a window."""
    bodies = list(_bodies(proto.graph))
    nodes = [node for graph in (proto.graph, *bodies) for node in graph.node]
    sliced = any(node.op_type == "Slice" for body in bodies for node in body.node)
    if not (sliced and any(map(_may_leave_nothing, nodes))):
        return proto
    bare = onnx.ModelProto()
    bare.CopyFrom(proto)
    for body in _bodies(bare.graph):
        other_nodes = [node for node in body.node if node.op_type != "Slice"]
        del body.node[:]
        body.node.extend(other_nodes)
    return bare


def _bodies(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield the bodies of nodes, and those inside of them."""
    for node in graph.node:
        for body in inner_graphs(node):
            yield body
            yield from _bodies(body)


def _find_negative_extents(graph: onnx.GraphProto) -> set[str]:
    """Return the tensors of negative extent."""
    infos = (*graph.value_info, *graph.output)
    shapes = ((info.name, info.type.tensor_type.shape) for info in infos)
    return {name for name, shape in shapes if any(d.dim_value < 0 for d in shape.dim)}


def _infer_to_outer_slices(proto: onnx.ModelProto) -> onnx.ModelProto | None:
    """Infer up to Slices outside of bodies: once more for each that has such windows before it."""
    settled: set[str] = set()  # tensors of no negative extent
    while any(node.op_type == "Slice" for node in proto.graph.node):
        nodes = _drop_doubtful_slices(proto, settled)
        if len(nodes) == len(proto.graph.node):
            return None
        partial = onnx.ModelProto()
        partial.CopyFrom(proto)
        del partial.graph.node[:]
        partial.graph.node.extend(nodes)
        try:
            inferred = onnx.shape_inference.infer_shapes(partial, data_prop=True)
        except Exception:
            return None
        if _find_negative_extents(inferred.graph):
            return inferred
        types = {
            i.name: i.type.tensor_type for i in (*inferred.graph.value_info, *inferred.graph.output)
        }
        new = {
            name for name, tensor_type in types.items() if tensor_type.HasField("shape")
        } - settled
        if not new:
            return None
        settled |= new
    return None


def _drop_doubtful_slices(proto: onnx.ModelProto, settled: Collection[str]) -> list[onnx.NodeProto]:
    """Return the nodes but for each Slice that may read a negative extent."""
    nodes, doubtful = list[onnx.NodeProto](), set[str]()
    for node in proto.graph.node:
        is_downstream = not doubtful.isdisjoint(node.input)
        if is_downstream or _may_leave_nothing(node):
            doubtful.update(name for name in node.output if name not in settled)
        if not is_downstream or node.op_type != "Slice":
            nodes.append(node)
    return nodes


def _may_leave_nothing(node: onnx.NodeProto) -> bool:
    """Return whether a window may be larger than an input of one cell with its pads."""
    if node.op_type not in _WINDOWS:
        return False
    attrs = {a.name: list(a.ints) for a in node.attribute}
    kernel, pads = attrs.get("kernel_shape", []), attrs.get("pads", [])
    if node.op_type == "ConvTranspose":  # whose pads crop
        return any(pads)
    steps = attrs.get("dilations") or [1] * len(kernel)
    added = [a + b for a, b in zip(pads, pads[len(kernel) :], strict=False)] or [0] * len(kernel)
    axes = zip(kernel, steps, added, strict=False)
    return not kernel or any((size - 1) * step > more for size, step, more in axes)
