"""Choice of operators beside the convolution that the device runs on int8.

Operators that compute read and make int8 tensors of one scale each, and round once
(docs/arithmetic.md), if the target lists them; ``regions`` decides which are worth it.
Passthrough operators only move or compare integers, so that all their tensors have one scale.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

from npuconv.model import Model, Node, Tensor, facts, query
from npuconv.ops.operator import OPERATORS, operator_of, values_of

if TYPE_CHECKING:
    from npuconv.target import Target


def is_table(node: Node) -> bool:
    """Return whether the operator is a function of one value; a PRelu needs a single slope."""
    operator = OPERATORS.get(node.op)
    if operator is None or not operator.is_table or len(values_of(node)) != 1:
        return False
    parameters = [query.constant_input(node, place) for place in operator.parameters]
    return all(value is not None and value.size == 1 for value in parameters)


def is_held(node: Node, form: str) -> bool:
    """Return whether a form of the written model can hold the node in int8; ONNX holds all."""
    if form != "tflite":
        return True
    operator = OPERATORS.get(node.op)
    return operator is not None and operator.in_tflite is not None and operator.in_tflite(node)


def constants_of(node: Node, *, include_scalars: bool = False) -> list[int]:
    """Return the indices of the constants that are int8 tensors on the device.

    A constant of one value is part of a factor or a table, unless ``include_scalars``.
    """
    if node.op not in ("Add", "Sub", "Mul"):
        return []
    constants = [(k, query.constant_input(node, k)) for k in range(len(node.inputs))]
    return [
        k for k, value in constants if value is not None and (include_scalars or value.size > 1)
    ]


def passes_int8(node: Node, int8: Collection[int]) -> bool:
    """Return whether a node only moves or compares int8 values.

    Args:
        node: any.
        int8: ids of the tensors that are int8.
    """
    operator = operator_of(node)
    if operator is None or operator.passes is None:
        return False
    return all(id(t) in int8 for t in operator.values(node)) and operator.passes(node)


def takes_as(op: str, node: Node, target: Target, *, after_conv: bool = False) -> bool:
    """Return whether the device runs this operator in place of a node: fused, or listed."""
    if after_conv and op in target.fusible:
        return True
    operator = target.operator(op, node.domain or "")
    return operator is not None and not operator.objections(facts.settled(node))


CUTTING = ("Relu", "Clip")  # operators that int8 may replace by saturation
_MASKING = ("Add", "Sub", "Where")
MOVEMENTS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose")


def softmax_behind(model: Model, tensor: Tensor) -> Node | None:
    """Return the Softmax that alone reads a tensor, directly or after Reshape or Transpose."""
    reader = query.sole_consumer(model, tensor)
    while reader is not None and reader.op in MOVEMENTS:
        reader = query.sole_consumer(model, reader.outputs[0])
    return reader if reader is not None and reader.op == "Softmax" else None


def masked_softmaxes(model: Model) -> Iterator[Node]:
    """Yield each Softmax that alone reads an Add, Sub or Where: an input may be a mask."""
    for node in model.nodes(*_MASKING):
        softmax = softmax_behind(model, node.outputs[0])
        if softmax is not None:
            yield softmax


def _is_bounded(model: Model, node: Node) -> bool:
    """Return whether all constants are finite, or the node masks the input of a Softmax."""
    constants = [
        v for t in node.inputs if (v := query.value(t)) is not None and v.dtype.kind == "f"
    ]
    if all(abs(value).max(initial=0.0) < math.inf for value in constants):
        return True
    return node.op in _MASKING and softmax_behind(model, node.outputs[0]) is not None


def candidates(model: Model, target: Target, off: Collection[str], form: str = "") -> list[Node]:
    """Return the operators that the target lists, within its limits, in the order of the model.

    Args:
        model: a legalized model.
        target: the device.
        off: names of nodes that stay on the host.
        form: format of the written model.
    """
    computed = []
    for node in model.nodes():
        operator = target.operator(node.op, node.domain or "")
        if node.name in off or operator is None or not is_defined(node):
            continue
        if node.op == "Concat" and not operator.requantizes:
            continue
        if operator.objections(facts.settled(node)) or not is_held(node, form):
            continue
        if _is_bounded(model, node):
            computed.append(node)
    return computed


def is_defined(node: Node) -> bool:
    """Return whether int8 semantics are defined for the node; the target need not list it."""
    operator = operator_of(node)
    if operator is None or operator.is_defined is None or len(node.outputs) != 1:
        return False
    tensors = [*values_of(node), *node.outputs]
    floats = all(query.dtype_name(t) == "float32" for t in tensors)
    return floats and operator.is_defined(node)
