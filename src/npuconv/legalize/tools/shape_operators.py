"""The operators of shape arithmetic, on tensors of which some elements may be unknown.

Elements are Python objects in numpy arrays: numpy moves them, ``shape_elements`` computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
from onnx import helper

from npuconv.legalize.tools import shape_elements as scalars
from npuconv.model import query
from npuconv.model.skeleton import MAX_SHAPE_VALUES
from npuconv.model.types import Node

Operands = Sequence["Partial | None"]
Operator = Callable[[Node, Operands], Iterable["Partial | None"]]
Layout = Callable[[Node, np.ndarray, Operands], Any]


class UnknownError(Exception):
    """Signal for a result of which nothing is known; never leaves the evaluation."""


@dataclass(frozen=True)
class Partial:
    """A tensor of which some elements are known."""

    elements: np.ndarray  # of Element
    dtype: np.dtype[Any]

    @property
    def complete(self) -> bool:
        """Return whether every element is a number."""
        return all(isinstance(e, (bool, int, float)) for e in self.elements.flat)

    @property
    def blank(self) -> bool:
        """Return whether there are elements, and all of them are unknown."""
        return self.elements.size > 0 and all(e is None for e in self.elements.flat)

    def values(self) -> np.ndarray:
        """Return the numbers; every element must be one."""
        return self.elements.astype(self.dtype)

    def integers(self) -> list[int]:
        """Return the numbers, in order.

        Raises:
            UnknownError: not all of them are known, or they are no integers.
        """
        if self.dtype.kind not in "iu" or not self.complete:
            raise UnknownError
        return [int(e) for e in self.elements.flat]


def as_elements(elements: Iterable[Any]) -> np.ndarray:
    """Return an array of one dimension with these elements."""
    row = list(elements)
    array = np.empty(len(row), dtype=object)
    array[:] = row
    return array


def _array(value: Any) -> np.ndarray:
    """Return an array, also of the single object that numpy gives for one of rank 0."""
    if isinstance(value, np.ndarray):
        return value
    array = np.empty((), dtype=object)
    array[()] = value
    return array


def _required(operands: Operands, index: int) -> Partial:
    part = operands[index] if index < len(operands) else None
    if part is None:
        raise UnknownError
    return part


def _integers(node: Node, operands: Operands, name: str, index: int) -> list[int] | None:
    """Return integers given as an attribute (older opsets) or an input; None if not given."""
    if name in node.attrs:
        return [int(v) for v in node.attrs[name]]
    if query.input_of(node, index) is None:
        return None
    return _required(operands, index).integers()


def _position(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise UnknownError
    return axis % rank


def _small(shape: Sequence[int]) -> list[int]:
    if any(d < 0 for d in shape) or math.prod(shape) > MAX_SHAPE_VALUES:
        raise UnknownError
    return list(shape)


# Arithmetic


def _map(function: Any, dtype: np.dtype[Any], *operands: Partial) -> Partial:
    """Apply a function of elements to operands stretched to a common shape."""
    arrays = [p.elements for p in operands]
    _small(np.broadcast_shapes(*(a.shape for a in arrays)))
    return Partial(_array(np.frompyfunc(function, len(arrays), 1)(*arrays)), dtype)


def _binary(function: scalars.Binary, dtype: np.dtype[Any] | None = None) -> Operator:
    """Return an operator of two or more operands of one type, taken from the left."""

    def apply(node: Node, operands: Operands) -> Iterable[Partial]:
        """Fold the operands from the left."""
        if "broadcast" in node.attrs or "axis" in node.attrs:  # before opset 7
            raise UnknownError
        source = _required(operands, 0).dtype
        parts = [_required(operands, i) for i in range(len(operands))]
        if any(p.dtype != source for p in parts):
            raise UnknownError
        step = partial(_map, lambda x, y: function(x, y, source), dtype or source)
        yield reduce(step, parts)

    return apply


def _unary(function: scalars.Unary, kinds: str) -> Operator:
    """Return an operator of one operand, of types of these kinds."""

    def apply(_node: Node, operands: Operands) -> Iterable[Partial]:
        part = _required(operands, 0)
        if part.dtype.kind not in kinds:
            raise UnknownError
        yield _map(lambda x: function(x, part.dtype), part.dtype, part)

    return apply


def _rounded(function: Any) -> scalars.Unary:
    return lambda a, dtype: None if a is None else scalars.fit(function(a), dtype)


def _absolute(a: Any, dtype: np.dtype[Any]) -> scalars.Element:
    return None if a is None or isinstance(a, scalars.Extent) else scalars.fit(abs(a), dtype)


def _not(a: Any, _dtype: np.dtype[Any]) -> scalars.Element:
    return None if a is None else not a


def _mirrored(function: scalars.Binary) -> scalars.Binary:
    return lambda a, b, dtype: function(b, a, dtype)


def _negated(function: scalars.Binary) -> scalars.Binary:
    return lambda a, b, dtype: _not(function(a, b, dtype), dtype)


def _mod(node: Node, operands: Operands) -> Iterable[Partial | None]:
    function = scalars.remainder if query.attribute(node, "fmod", 0) else scalars.modulo
    return _binary(function)(node, operands)


def _cast(node: Node, operands: Operands) -> Iterable[Partial]:
    part = _required(operands, 0)
    target = np.dtype(helper.tensor_dtype_to_np_dtype(int(node.attrs["to"])))
    if target.kind not in "iufb":
        raise UnknownError
    yield _map(lambda x: scalars.convert(x, part.dtype, target), target, part)


def _where(_node: Node, operands: Operands) -> Iterable[Partial]:
    condition, a, b = (_required(operands, i) for i in range(3))
    yield _map(scalars.choose, a.dtype, condition, a, b)


def _reduction(function: scalars.Binary) -> Operator:
    """Return a reduction of integers, whose order does not matter."""

    def apply(node: Node, operands: Operands) -> Iterable[Partial]:
        """Reduce the operand along its axes."""
        part = _required(operands, 0)
        if part.dtype.kind not in "iu":
            raise UnknownError
        result = part.elements
        axes = _reduced_axes(node, operands, result.ndim)
        step = np.frompyfunc(lambda a, b: function(a, b, part.dtype), 2, 1)
        for axis in axes:
            result = step.reduce(result, axis=axis, keepdims=True)
        if not query.attribute(node, "keepdims", 1):
            result = result.squeeze(tuple(axes))
        yield Partial(result, part.dtype)

    return apply


def _reduced_axes(node: Node, operands: Operands, rank: int) -> list[int]:
    given = _integers(node, operands, "axes", 1)
    if not given:
        return [] if query.attribute(node, "noop_with_empty_axes", 0) else list(range(rank))
    return sorted({_position(axis, rank) for axis in given})


# Layout


def _layout(function: Layout) -> Operator:
    """Return an operator that moves the elements of its first operand."""

    def apply(node: Node, operands: Operands) -> Iterable[Partial]:
        part = _required(operands, 0)
        yield Partial(_array(function(node, part.elements, operands)), part.dtype)

    return apply


def _concat(node: Node, _elements: np.ndarray, operands: Operands) -> np.ndarray:
    parts = [_required(operands, i).elements for i in range(len(operands))]
    return np.concatenate(parts, axis=int(query.attribute(node, "axis", 1)))


def _gather(node: Node, elements: np.ndarray, operands: Operands) -> Any:
    indices = _required(operands, 1)
    axis = _position(int(query.attribute(node, "axis", 0)), elements.ndim)
    where = np.asarray(indices.integers(), np.int64).reshape(indices.elements.shape)
    return np.take(elements, where, axis=axis)


def _slice(node: Node, elements: np.ndarray, operands: Operands) -> np.ndarray:
    starts, ends = (_integers(node, operands, n, i) for i, n in ((1, "starts"), (2, "ends")))
    if starts is None or ends is None:
        raise UnknownError
    axes = _integers(node, operands, "axes", 3) or range(len(starts))
    steps = _integers(node, operands, "steps", 4) or [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        place = _position(axis, elements.ndim)
        taken = sliced_positions(elements.shape[place], start, end, step)
        elements = np.take(elements, np.asarray(list(taken), np.int64), axis=place)
    return elements


def sliced_positions(extent: int, start: int, end: int, step: int) -> range:
    """Return the positions along an axis that Slice takes.

    Raises:
        UnknownError: a step of 0, or an axis without cells taken from its end.
    """
    if step == 0 or (extent == 0 and step < 0):
        raise UnknownError
    first = start + extent if start < 0 else start
    last = end + extent if end < 0 else end
    if step > 0:
        return range(min(max(first, 0), extent), min(max(last, 0), extent), step)
    return range(min(max(first, 0), extent - 1), min(max(last, -1), extent - 1), step)


def _split(node: Node, operands: Operands) -> Iterable[Partial]:
    part = _required(operands, 0)
    axis = _position(int(query.attribute(node, "axis", 0)), part.elements.ndim)
    extent, count = part.elements.shape[axis], len(node.outputs)
    lengths = _integers(node, operands, "split", 1)
    if lengths is None:
        each = -(-extent // count)
        lengths = [min(each, extent - each * i) for i in range(count)]
    if sum(lengths) != extent or min(lengths) < 0 or len(lengths) != count:
        raise UnknownError
    for piece in np.split(part.elements, np.cumsum(lengths)[:-1].tolist(), axis=axis):
        yield Partial(piece, part.dtype)


def _squeeze(node: Node, elements: np.ndarray, operands: Operands) -> np.ndarray:
    axes = _integers(node, operands, "axes", 1)
    if axes is None:
        return elements.squeeze()
    return elements.squeeze(tuple(_position(axis, elements.ndim) for axis in axes))


def _unsqueeze(node: Node, elements: np.ndarray, operands: Operands) -> np.ndarray:
    axes = _integers(node, operands, "axes", 1)
    if axes is None:
        raise UnknownError
    return np.expand_dims(elements, tuple(axes))


def _reshape(node: Node, elements: np.ndarray, operands: Operands) -> np.ndarray:
    target = _integers(node, operands, "shape", 1)
    if target is None or query.attribute(node, "allowzero", 0):
        raise UnknownError
    return elements.reshape([elements.shape[i] if d == 0 else d for i, d in enumerate(target)])


def _expand(_node: Node, elements: np.ndarray, operands: Operands) -> np.ndarray:
    target = _required(operands, 1).integers()
    return np.broadcast_to(elements, _small(np.broadcast_shapes(elements.shape, tuple(target))))


def _tile(node: Node, elements: np.ndarray, operands: Operands) -> np.ndarray:
    repeats = _required(operands, 1).integers()
    if len(node.inputs) != 2 or len(repeats) != elements.ndim:
        raise UnknownError
    _small([d * r for d, r in zip(elements.shape, repeats, strict=True)])
    return np.tile(elements, repeats)


def _constant_of_shape(node: Node, operands: Operands) -> Iterable[Partial]:
    shape = _small(_required(operands, 0).integers())
    given = node.attrs.get("value")
    fill = np.zeros(1, np.float32) if given is None else np.asarray(given.values)
    if fill.dtype.kind not in "iufb":
        raise UnknownError
    yield Partial(np.full(shape, fill.reshape(-1)[0]).astype(object), fill.dtype)


def _range(_node: Node, operands: Operands) -> Iterable[Partial]:
    parts = [_required(operands, i) for i in range(3)]
    start, limit, delta = (p.integers()[0] for p in parts)
    if delta == 0:
        raise UnknownError
    numbers = range(start, limit, delta)
    _small([len(numbers)])
    yield Partial(np.asarray(list(numbers), parts[0].dtype).astype(object), parts[0].dtype)


_BOOL = np.dtype(bool)
OPERATORS: dict[str, Operator] = {
    "Identity": _layout(lambda _node, elements, _operands: elements),
    "Concat": _layout(_concat),
    "Gather": _layout(_gather),
    "Slice": _layout(_slice),
    "Split": _split,
    "Squeeze": _layout(_squeeze),
    "Unsqueeze": _layout(_unsqueeze),
    "Transpose": _layout(lambda node, x, _operands: x.transpose(query.attribute(node, "perm"))),
    "Reshape": _layout(_reshape),
    "Expand": _layout(_expand),
    "Tile": _layout(_tile),
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "Add": _binary(scalars.add),
    "Sub": _binary(scalars.subtract),
    "Mul": _binary(scalars.multiply),
    "Div": _binary(scalars.divide),
    "Mod": _mod,
    "Min": _binary(scalars.smaller),
    "Max": _binary(scalars.larger),
    "Equal": _binary(scalars.is_equal, _BOOL),
    "Less": _binary(scalars.is_less, _BOOL),
    "Greater": _binary(_mirrored(scalars.is_less), _BOOL),
    "LessOrEqual": _binary(_negated(_mirrored(scalars.is_less)), _BOOL),
    "GreaterOrEqual": _binary(_negated(scalars.is_less), _BOOL),
    "And": _binary(scalars.both),
    "Or": _binary(scalars.either),
    "Xor": _binary(scalars.differ),
    "Not": _unary(_not, "b"),
    "Neg": _unary(scalars.negate, "if"),
    "Abs": _unary(_absolute, "if"),
    "Floor": _unary(_rounded(np.floor), "f"),
    "Ceil": _unary(_rounded(np.ceil), "f"),
    "Round": _unary(_rounded(np.rint), "f"),
    "Cast": _cast,
    "Where": _where,
    "ReduceSum": _reduction(scalars.add),
    "ReduceProd": _reduction(scalars.multiply),
    "ReduceMin": _reduction(scalars.smaller),
    "ReduceMax": _reduction(scalars.larger),
}
