"""Along which axis of an output the largest value is an answer."""

from __future__ import annotations

import onnx
from onnx import helper

_NORMALIZING = frozenset({"Softmax", "LogSoftmax"})
_PASSING = frozenset({"Identity", "Cast"})
_BY_AXIS = 13  # opset since which these normalize along one axis


def class_axes(model: onnx.ModelProto) -> dict[str, int]:
    """By output, where a Softmax tells it.

    Before opset 13 a Softmax normalized its axis and all behind it together, by default from
    axis 1 on: that tells an axis only where it is the last.
    """
    opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)
    makers = {name: node for node in model.graph.node for name in node.output if name}
    found = {}
    for output in model.graph.output:
        node = makers.get(output.name)
        while node is not None and node.op_type in _PASSING:
            node = makers.get(node.input[0])
        if node is None or node.op_type not in _NORMALIZING:
            continue
        axis = _axis(node, -1 if opset >= _BY_AXIS else 1)
        rank = len(output.type.tensor_type.shape.dim)
        if opset >= _BY_AXIS or axis in (-1, rank - 1):
            found[output.name] = axis
    return found


def _axis(node: onnx.NodeProto, default: int) -> int:
    given = [a for a in node.attribute if a.name == "axis"]
    return int(helper.get_attribute_value(given[0])) if given else default
