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
    walk = _Backward(tape, set(tensors), floats)
    walk.run(outputs)
    gradients = {name: walk.summed(name) for name in sorted(walk.tensors)}
    return {name: gradient for name, gradient in gradients.items() if gradient}, walk.seeds


class _Backward:
    """The state of one backward pass."""

    def __init__(
        self,
        tape: Tape,
        tensors: set[str],
        floats: Collection[str],
    ) -> None:
        self.tape, self.tensors, self.floats = tape, tensors, floats
        self.nodes = list(tape.graph.node)
        self.seeds: dict[str, str] = {}
        self._gradients: dict[str, list[str]] = {}
        self._needed = set(tensors)
        for node in self.nodes:
            if not self._needed.isdisjoint(reads(node)):
                self._needed.update(node.output)

    def run(self, outputs: Sequence[str]) -> None:
        """Walk from the outputs back to the tensors whose gradients are asked for."""
        reached = set(outputs)
        for name in outputs:
            self._end(name)
        for node in reversed(self.nodes):
            if reached.isdisjoint(node.output) or node.op_type in _SHAPE_ONLY:
                continue
            # A branch of an If reads tensors that are none of its inputs.
            inputs = dict.fromkeys(reads(node))
            reached.update(self._needed.intersection(inputs))
            gradients = self._differentiate(node)
            passed = {k: node.input[k] for k in gradients if node.input[k] in self._needed}
            for index, name in passed.items():
                self._gradients.setdefault(name, []).append(gradients[index])
            for name in inputs:
                if name not in passed.values():
                    self._end(name)

    def summed(self, name: str) -> str:
        """Return the gradient of a tensor after all its readers were visited; "" without one."""
        parts = self._gradients.get(name, [])
        if len(parts) > 1:
            self._gradients[name] = parts = [self.tape.total(parts)]
        return parts[0] if parts else ""

    def _end(self, name: str) -> None:
        """Make a float tensor of a known shape an end, if its gradient is needed."""
        differentiable = name in self._needed and name in self.floats and name in self.tape.shapes
        if differentiable and name not in self.seeds:
            self.seeds[name] = f"{PREFIX}/seed/{name}"
            self._gradients.setdefault(name, []).append(self.seeds[name])

    def _differentiate(self, node: onnx.NodeProto) -> dict[int, str]:
        """Return the gradients of the inputs by index, if the node can be differentiated."""
        arrived = [self.summed(name) for name in node.output]
        operator = None if node.domain not in ("", "ai.onnx") else OPERATORS.get(node.op_type)
        adjoint = None if operator is None else operator.adjoint
        static = all(name in self.tape.shapes for name in (*node.input, *node.output) if name)
        is_float32 = node.output[0] in self.floats
        if adjoint is None or not static or not is_float32 or not any(arrived):
            return {}
        return adjoint(self.tape, Visit(self.tape, node, arrived))
