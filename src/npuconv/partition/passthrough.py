"""Operators that pass int8 values on: moved or compared, the integers stay the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.model import query

if TYPE_CHECKING:
    from collections.abc import Collection

    from npuconv.model.types import Node, Tensor

# Operators whose int8 form gives the same integers as the float form on integer multiples
# of one scale. The value is the number of data inputs; None: all of them.
EXACT_ON_INT8: dict[str, int | None] = {
    "Relu": 1,
    "Clip": 1,
    "MaxPool": 1,
    "Pad": 1,
    "Reshape": 1,
    "Flatten": 1,
    "Squeeze": 1,
    "Unsqueeze": 1,
    "Transpose": 1,
    "Slice": 1,
    "Split": 1,
    "Gather": 1,
    "DepthToSpace": 1,
    "SpaceToDepth": 1,
    "Resize": 1,
    "Concat": None,
}


def data_inputs(node: Node) -> list[Tensor]:
    """The inputs of a carried operator that hold values, not shapes or bounds."""
    return list(node.inputs)[: EXACT_ON_INT8[node.op]]


def carries(node: Node, int8: Collection[int]) -> bool:
    """Return whether a node passes int8 values on.

    Args:
        node: any.
        int8: ids of the tensors that are int8.
    """
    if node.op not in EXACT_ON_INT8 or not query.is_standard(node):
        return False
    if not all(id(t) in int8 for t in data_inputs(node)):
        return False
    if node.op == "Resize":
        # onnxruntime moves a Transpose through a Resize of int8 without turning its axes.
        nearest = str(query.attribute(node, "mode", "nearest")) == "nearest"
        return nearest and not _has_roi(node) and not query.attribute(node, "axes")
    if node.op == "MaxPool":
        return len(node.outputs) == 1 and not query.attribute(node, "storage_order", 0)
    if node.op == "Pad":
        return _pads_with_constant(node)
    if node.op == "Clip":
        return all(
            query.input_of(node, i) is None or query.scalar_input(node, i) is not None
            for i in (1, 2)
        )
    return True


def _has_roi(node: Node) -> bool:
    mode = str(query.attribute(node, "coordinate_transformation_mode", ""))
    return mode == "tf_crop_and_resize"


def _pads_with_constant(node: Node) -> bool:
    mode = str(query.attribute(node, "mode", "constant"))
    given = query.input_of(node, 2)
    return mode == "constant" and (given is None or query.scalar_input(node, 2) is not None)
