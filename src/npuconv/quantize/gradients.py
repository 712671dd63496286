"""Gradients of a model with respect to its tensors, as ordinary ONNX nodes.

Reverse-mode differentiation written into the graph: for every node between the watched
tensors and the outputs its adjoint is appended. Inputs of an operator without an adjoint
count as outputs. Shapes must be static.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import onnx

from npuconv.model.proto import reads
from npuconv.ops.operator import OPERATORS
from npuconv.ops.tape import PREFIX, Tape, Visit

_SHAPE_ONLY = frozenset({"Shape", "Size"})  # operators whose output depends on no value


def backward(
    tape: Tape,
    outputs: Sequence[str],
    tensors: Iterable[str],
    floats: Collection[str],
) -> tuple[dict[str, str], dict[str, str]]:
    """Append the gradients of ``sum(seed * end)`` over all ends.

    Ends are the outputs, and inputs of operators that no gradient passes. Only float32 tensors,
    ``floats``, are ends.

    Returns:
        The name of the gradient by tensor of ``tensors``, if any end depends on it; and the name
        of the seed by end, a tensor of the same shape that has no producer yet.
    """
    nodes, tensor_names = list(tape.graph.node), set(tensors)
    needed, reached = set(tensor_names), set(outputs)
    for node in nodes:
        if not needed.isdisjoint(reads(node)):
            needed.update(node.output)
    seeds: dict[str, str] = {}
    parts: dict[str, list[str]] = {}  # gradients by consumer, for each tensor

    def make_end(name: str) -> None:
        """Make a float tensor of a known shape an end, if its gradient is needed."""
        if name in needed and name in floats and name in tape.shapes and name not in seeds:
            seeds[name] = f"{PREFIX}/seed/{name}"
            parts.setdefault(name, []).append(seeds[name])

    def summed(name: str) -> str:
        """Return the gradient of a tensor after all its consumers were visited; "" without one."""
        if len(parts.get(name, ())) > 1:
            parts[name] = [tape.total(parts[name])]
        return parts[name][0] if name in parts else ""

    for name in outputs:
        make_end(name)
    for node in reversed(nodes):
        if reached.isdisjoint(node.output) or node.op_type in _SHAPE_ONLY:
            continue
        # A branch of an If reads tensors that are none of its inputs.
        inputs = dict.fromkeys(reads(node))
        reached.update(needed.intersection(inputs))
        gradients = _differentiate(tape, node, [summed(name) for name in node.output], floats)
        passed = {k: node.input[k] for k in gradients if node.input[k] in needed}
        for index, name in passed.items():
            parts.setdefault(name, []).append(gradients[index])
        for name in inputs:
            if name not in passed.values():
                make_end(name)
    return {name: gradient for name in sorted(tensor_names) if (gradient := summed(name))}, seeds


def _differentiate(
    tape: Tape, node: onnx.NodeProto, arrived: list[str], floats: Collection[str]
) -> dict[int, str]:
    """Return the gradients of the inputs by index, if the node can be differentiated."""
    operator = None if node.domain not in ("", "ai.onnx") else OPERATORS.get(node.op_type)
    adjoint = None if operator is None else operator.adjoint
    static = all(name in tape.shapes for name in (*node.input, *node.output) if name)
    if adjoint is None or not static or node.output[0] not in floats or not any(arrived):
        return {}
    return adjoint(tape, Visit(tape, node, arrived))
