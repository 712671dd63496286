"""Gradients of a model with respect to its tensors, as ordinary ONNX nodes.

Reverse-mode differentiation written into the graph: for every node between the watched
tensors and the outputs its adjoint is appended. What an operator without an adjoint reads
counts as an output of its own. Shapes must be static.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from npuconv.model import store
from npuconv.model.proto import reads

OLDEST_OPSET = 13  # from here on ReduceSum takes its axes as an input
_SHAPE_ONLY = frozenset({"Shape", "Size"})  # no value flows through them
_REDUCE_AXES_AS_INPUT = 18  # opset, for ReduceMean
PREFIX = "npuconv/gradient"
Shape = tuple[int, ...]
Gradients = dict[int, str]


class Tape:
    """A graph to which nodes are appended.

    Its nodes are in topological order, its opset is 13 at least.
    """

    def __init__(self, graph: onnx.GraphProto, shapes: Mapping[str, Shape], opset: int) -> None:
        self.graph, self.shapes, self.opset = graph, dict(shapes), opset
        self._constants = {t.name: t for t in graph.initializer}
        self._count = 0

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Append a node and return the name of its output."""
        self._count += 1
        name = f"{PREFIX}/{self._count}"
        self.graph.node.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def constant(self, values: object, dtype: type = np.float32) -> str:
        """Append an initializer and return its name."""
        self._count += 1
        name = f"{PREFIX}/{self._count}"
        self.graph.initializer.append(store.initializer(name, np.asarray(values, dtype)))
        return name

    def integers(self, values: Sequence[int] | NDArray[np.int64]) -> str:
        """Append an int64 initializer and return its name."""
        return self.constant(values, np.int64)

    def value(self, name: str) -> NDArray[Any] | None:
        """Return the value of a constant of the model, None for anything else."""
        tensor = self._constants.get(name)
        return None if tensor is None else store.array(tensor)

    def reduce(self, op: str, source: str, axes: Sequence[int], *, keepdims: bool) -> str:
        """Append ReduceSum or ReduceMean."""
        if op == "ReduceSum" or self.opset >= _REDUCE_AXES_AS_INPUT:
            return self.add(op, source, self.integers(axes), keepdims=int(keepdims))
        return self.add(op, source, axes=list(axes), keepdims=int(keepdims))

    def reshape(self, source: str, shape: Sequence[int]) -> str:
        """Append a Reshape to a static shape."""
        return self.add("Reshape", source, self.integers(shape))

    def masked(self, source: str, condition: str) -> str:
        """Append a product with a bool tensor."""
        return self.add("Mul", source, self.add("Cast", condition, to=onnx.TensorProto.FLOAT))

    def total(self, parts: Sequence[str]) -> str:
        """Append the sum of one or more tensors."""
        return parts[0] if len(parts) == 1 else self.add("Sum", *parts)


class Visit:
    """A node on the way back, with the gradients that arrived at its outputs."""

    def __init__(self, tape: Tape, node: onnx.NodeProto, gradients: Sequence[str]) -> None:
        self.node, self.gradients, self._tape = node, gradients, tape
        self.op, self.inputs = node.op_type, list(node.input)
        self.x, self.y, self.dy = node.input[0], node.output[0], gradients[0]

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """Attributes by name."""
        return {a.name: helper.get_attribute_value(a) for a in self.node.attribute}

    def shape(self, index: int = 0) -> Shape:
        """Return the shape of an input."""
        return self._tape.shapes[self.inputs[index]]

    @property
    def output_shape(self) -> Shape:
        """Shape of the first output."""
        return self._tape.shapes[self.y]


Adjoint = Callable[[Tape, Visit], Gradients]


def backward(
    tape: Tape,
    outputs: Sequence[str],
    wanted: Iterable[str],
    floats: Collection[str],
    adjoints: Mapping[str, Adjoint],
) -> tuple[dict[str, str], dict[str, str]]:
    """Append the gradients of ``sum(seed * end)`` over all ends.

    Ends are the outputs, and what is read by an operator that no gradient passes.

    Only float32 tensors, ``floats``, are ends. Adjoints are by operator.

    Returns:
        By wanted tensor the name of its gradient, without those that no end depends on; and
        by end the name of its seed, a tensor of the same shape that nothing makes yet.
    """
    found = _Backward(tape, set(wanted), floats, adjoints)
    found.run(outputs)
    gradients = {name: found.summed(name) for name in sorted(found.wanted)}
    return {name: gradient for name, gradient in gradients.items() if gradient}, found.seeds


class _Backward:
    """The state of one backward pass."""

    def __init__(
        self,
        tape: Tape,
        wanted: set[str],
        floats: Collection[str],
        adjoints: Mapping[str, Adjoint],
    ) -> None:
        self.tape, self.wanted, self.floats, self.adjoints = tape, wanted, floats, adjoints
        self.nodes = list(tape.graph.node)
        self.seeds: dict[str, str] = {}
        self._gradients: dict[str, list[str]] = {}
        self._needed = set(wanted)
        for node in self.nodes:
            if not self._needed.isdisjoint(reads(node)):
                self._needed.update(node.output)

    def run(self, outputs: Sequence[str]) -> None:
        """Walk from the outputs back to the tensors that are wanted."""
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
        """Return the gradient of a tensor whose readers have all been passed; "" for none."""
        parts = self._gradients.get(name, [])
        if len(parts) > 1:
            self._gradients[name] = parts = [self.tape.total(parts)]
        return parts[0] if parts else ""

    def _end(self, name: str) -> None:
        """Let a float tensor of a known shape be an end, if any gradient is needed of it."""
        differentiable = name in self._needed and name in self.floats and name in self.tape.shapes
        if differentiable and name not in self.seeds:
            self.seeds[name] = f"{PREFIX}/seed/{name}"
            self._gradients.setdefault(name, []).append(self.seeds[name])

    def _differentiate(self, node: onnx.NodeProto) -> dict[int, str]:
        """Return the gradients of the inputs by index, without those that cannot be told."""
        arrived = [self.summed(name) for name in node.output]
        adjoint = None if node.domain not in ("", "ai.onnx") else self.adjoints.get(node.op_type)
        static = all(name in self.tape.shapes for name in (*node.input, *node.output) if name)
        numbers = node.output[0] in self.floats  # no double, no half
        if adjoint is None or not static or not numbers or not any(arrived):
            return {}
        return adjoint(self.tape, Visit(self.tape, node, arrived))
