"""One node by itself through ONNX's version converter, and what that gets wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import helper, version_converter

from npuconv.legalize.tools import broadcast as _broadcast
from npuconv.model import query, skeleton
from npuconv.model.core import subgraphs
from npuconv.model.proto import node_proto

if TYPE_CHECKING:
    from npuconv.model.types import Node, Tensor


def convert(node: Node, source: int, target: int) -> onnx.ModelProto:
    """The node alone through ONNX's version converter.

    Args:
        node: the node, which is not changed.
        source: its opset.
        target: the opset it is to have.

    Returns:
        A model of the nodes that take its place; its tensors keep their names.

    Raises:
        Exception: it cannot be converted; the converter's failures have no common base.
    """
    if any(subgraphs(node)):
        raise ValueError("an operator with a subgraph changed its form")
    if _broadcast.is_legacy(node, source):
        return _broadcast.convert(node)
    if node.op == "PRelu":
        raise ValueError("its slope ran along the channels before opset 7")
    read = {t.name: t for t in node.inputs if t.name}
    small = [t for t in read.values() if query.is_constant(t) and _is_small(t)]
    names = {t.name for t in small}
    proto, source = _helped(node_proto(node), source)
    graph = helper.make_graph(
        [proto],
        "one",
        [skeleton.value_info(t) for t in read.values()],
        [skeleton.value_info(t) for t in node.outputs if t.name],
        [onnx.numpy_helper.from_array(t.values, t.name) for t in small if t.name in names],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", source)], ir_version=7)
    converted = version_converter.convert_version(model, target)
    if node.op in ("Upsample", "Resize"):
        _keep_asymmetric(node, converted)
    _check_shapes(node, converted)
    return converted


def _helped(proto: onnx.NodeProto, source: int) -> tuple[onnx.NodeProto, int]:
    """The same node in a form, and an opset, that the converter can start from."""
    dropped = ""
    if proto.op_type == "Gemm" and source < 7:
        dropped, source = "broadcast", 7  # which needs no attribute for it any more
    if proto.op_type == "Pad" and source < 2:
        source = 2
        for attribute in proto.attribute:
            attribute.name = "pads" if attribute.name == "paddings" else attribute.name
    modes = [a.s for a in proto.attribute if a.name == "mode"]
    if proto.op_type == "Pad" and source < 11 and modes not in ([], [b"constant"]):
        dropped = "value"  # means nothing to other modes, and the converter leaves it there
    kept = [a for a in proto.attribute if a.name != dropped]
    del proto.attribute[:]
    proto.attribute.extend(kept)
    return proto, source


def _check_shapes(node: Node, converted: onnx.ModelProto) -> None:
    """The converter is not always right, and runtimes do not run every old operator."""
    inferred = onnx.shape_inference.infer_shapes(converted, data_prop=True).graph
    made = {info.name: info for info in (*inferred.output, *inferred.value_info)}
    for tensor in node.outputs:
        old = query.static_shape(tensor)
        info = made.get(tensor.name)
        if old is None or info is None:
            continue
        new = tuple(d.dim_value for d in info.type.tensor_type.shape.dim)
        if all(new) and new != old:
            raise ValueError(f"the version converter turns its shape {old} into {new}")


def _keep_asymmetric(node: Node, converted: onnx.ModelProto) -> None:
    """Before opset 11 cell i of a resized tensor showed ``i / scale``; the default changed."""
    scales = query.constant_input(node, len(node.inputs) - 1) if len(node.inputs) > 1 else None
    scales = node.attrs.get("scales") if scales is None else scales
    if scales is None:
        raise ValueError("its scales are not constant")
    shrinks = any(scale < 1 for scale in scales)
    if shrinks and any(scale > 1 for scale in scales):
        raise ValueError("it grows along one axis and shrinks along another")
    new = next(n for n in converted.graph.node if n.op_type == "Resize")
    kept = [a for a in new.attribute if a.name == "mode"]
    kept.append(helper.make_attribute("coordinate_transformation_mode", "asymmetric"))
    kept.append(helper.make_attribute("nearest_mode", "ceil" if shrinks else "floor"))
    del new.attribute[:]
    new.attribute.extend(kept)


def _is_small(tensor: Tensor) -> bool:
    return int(tensor.values.size) <= skeleton.MAX_SHAPE_VALUES
