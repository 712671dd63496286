"""Along which axis of an output the largest value is an answer."""

from __future__ import annotations

import onnx
from onnx import helper

_NORMALIZING = frozenset({"Softmax", "LogSoftmax"})
_PASSING = frozenset({"Identity", "Cast"})


def class_axes(model: onnx.ModelProto) -> dict[str, int]:
    """By output, where a Softmax tells it.

    Args:
        model: of opset 13 or newer: before, a Softmax flattened what is behind its axis.
    """
    makers = {name: node for node in model.graph.node for name in node.output if name}
    found = {}
    for output in model.graph.output:
        node = makers.get(output.name)
        while node is not None and node.op_type in _PASSING:
            node = makers.get(node.input[0])
        if node is not None and node.op_type in _NORMALIZING:
            given = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            found[output.name] = int(given.get("axis", -1))
    return found
