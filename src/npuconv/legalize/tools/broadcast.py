"""Broadcasting as it was before opset 7: by an attribute, along an axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx
from onnx import helper

from npuconv.model import query

if TYPE_CHECKING:
    from npuconv.model.types import Node

OPERATORS = frozenset(
    {"Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Greater", "Less"}
)


def is_legacy(node: Node, opset: int) -> bool:
    """Return whether the node broadcasts by attribute."""
    return opset < 7 and node.op in OPERATORS and bool(node.attrs.get("broadcast"))


def convert(node: Node) -> onnx.ModelProto:
    """The node with its second operand shaped so that numpy's broadcasting does the same.

    ONNX's version converter gets the rank of the operand wrong (1.23.2: a [4] along axis 1
    of a [1, 4, 7, 7] becomes [4, 1, 1, 1]), and no runtime runs the original to tell.

    Raises:
        ValueError: it broadcasts along an axis, and the operand or the rank is not known.
    """
    names = [tensor.name for tensor in node.inputs]
    axis = node.attrs.get("axis")
    initializers = []
    if axis is not None:
        values, rank = query.constant_input(node, 1), query.rank(node.inputs[0])
        if values is None or rank is None:
            raise ValueError("it broadcasts along an axis, and operand or rank is not known")
        behind = rank - int(axis) % rank - values.ndim
        names[1] = f"{names[1]}/broadcast"
        array = values.reshape(*values.shape, *(1,) * behind)
        initializers.append(onnx.numpy_helper.from_array(array, names[1]))
    new = helper.make_node(node.op, names, [tensor.name for tensor in node.outputs])
    graph = helper.make_graph([new], "one", [], [], initializers)
    return helper.make_model(graph)
