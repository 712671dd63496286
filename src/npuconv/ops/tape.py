"""Gradients of operators, as ordinary ONNX nodes that are appended to a tape.

The adjoint of an operator appends the nodes that compute the gradients of its inputs. They are
made of operators that every runtime has: the adjoint of a convolution is a ConvTranspose; where it
is depthwise, a product with the kernel for a single window, or a convolution for stride 1. An
adjoint returns gradients by the index of the input; none if they do not follow from the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from npuconv.model import store
from npuconv.model.proto import attributes_of

OLDEST_OPSET = 13  # first opset whose ReduceSum takes its axes as an input
_REDUCE_AXES_AS_INPUT = 18  # opset, for ReduceMean and ReduceMax
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
        """Append ReduceSum, ReduceMean or ReduceMax."""
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
        self.op, self.inputs, self.attributes = node.op_type, list(node.input), attributes_of(node)
        self.x, self.y, self.dy = node.input[0], node.output[0], gradients[0]

    def shape(self, index: int = 0) -> Shape:
        """Return the shape of an input."""
        return self._tape.shapes[self.inputs[index]]

    @property
    def output_shape(self) -> Shape:
        """Shape of the first output."""
        return self._tape.shapes[self.y]


Adjoint = Callable[[Tape, Visit], Gradients]


def unbroadcast(tape: Tape, gradient: str, shape: Shape, full: Shape) -> str:
    """Sum a gradient over the axes along which its tensor was broadcast."""
    if shape == full:
        return gradient
    padded = (1,) * (len(full) - len(shape)) + shape
    axes = [k for k, (a, b) in enumerate(zip(padded, full, strict=True)) if a != b]
    summed = tape.reduce("ReduceSum", gradient, axes, keepdims=True) if axes else gradient
    return tape.reshape(summed, shape)


def by_input(tape: Tape, visit: Visit, parts: Mapping[int, str]) -> Gradients:
    """Return gradients of inputs that were broadcast to the shape of the output."""
    return {k: unbroadcast(tape, g, visit.shape(k), visit.output_shape) for k, g in parts.items()}


def pass_selected(tape: Tape, visit: Visit) -> Gradients:
    """Pass the gradient to the input that the output is equal to."""
    values = visit.inputs[:1] if visit.op == "Clip" else visit.inputs
    masks = (tape.add("Equal", name, visit.y) for name in values)
    return by_input(tape, visit, {k: tape.masked(visit.dy, mask) for k, mask in enumerate(masks)})


def cells_behind(visit: Visit, strides: list[int], reach: list[int], pads: list[int]) -> list[int]:
    """Return the cells behind the last window, by axis; negative where it ends beyond the pads."""
    rows = zip(visit.shape()[2:], visit.output_shape[2:], strides, reach, strict=True)
    read = zip(rows, pads, pads[len(reach) :], strict=False)
    return [n + first + last - (m - 1) * s - e for (n, m, s, e), first, last in read]


def sliced(tape: Tape, source: str, spans: Mapping[int, tuple[int, int]]) -> str:
    """Append a Slice from a start to an end, by axis."""
    rows = ([s for s, _ in spans.values()], [e for _, e in spans.values()], list(spans))
    return tape.add("Slice", source, *map(tape.integers, rows))


def pass_reshaped(tape: Tape, visit: Visit) -> Gradients:
    """Pass the gradient of values that stay in their order."""
    return {0: tape.reshape(visit.dy, visit.shape())}


def pointwise(slope: Callable[[Tape, Visit], str]) -> Adjoint:
    """Return the adjoint of a function of one value, given the nodes of its slope."""
    return lambda tape, visit: {0: tape.add("Mul", visit.dy, slope(tape, visit))}
