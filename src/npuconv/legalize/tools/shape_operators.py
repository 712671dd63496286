"""The operators that shapes are computed with, on elements that may be unknown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from npuconv.legalize.tools import shape_elements as scalars
from npuconv.model import query
from npuconv.model.skeleton import SMALL

if TYPE_CHECKING:
    from npuconv.model.types import Node

    Operands = Sequence["Partial | None"]
    Operator = Callable[[Node, Operands], Iterable["Partial | None"]]


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
        """The numbers of a complete one."""
        return self.elements.astype(self.dtype)

    def integers(self) -> list[int]:
        """The numbers, in order.

        Raises:
            UnknownError: not all of them are known, or they are no integers.
        """
        if self.dtype.kind not in "iu" or not self.complete:
            raise UnknownError
        return [int(e) for e in self.elements.flat]


def as_elements(elements: Any) -> np.ndarray:
    """Elements in a row."""
    row = list(elements)
    array = np.empty(len(row), dtype=object)
    array[:] = row
    return array


def wrapped(value: Any) -> np.ndarray:
    """An array; numpy hands a single object out of its own."""
    if isinstance(value, np.ndarray):
        return value
    array = np.empty((), dtype=object)
    array[()] = value
    return array


_BOOL = np.dtype(bool)


def _map(function: Any, dtype: np.dtype[Any], *operands: Partial) -> Partial:
    """A function of elements, on operands stretched to a common shape."""
    arrays = [p.elements for p in operands]
    if math.prod(np.broadcast_shapes(*(a.shape for a in arrays))) > SMALL:
        raise UnknownError
    return Partial(wrapped(np.frompyfunc(function, len(arrays), 1)(*arrays)), dtype)


def _binary(function: scalars.Binary, dtype: np.dtype[Any] | None = None) -> Operator:
    """An operator of two or more operands of one type."""

    def apply(node: Node, operands: Operands) -> Iterable[Partial]:
        """All operands together, from the left."""
        if "broadcast" in node.attrs or "axis" in node.attrs:  # before opset 7
            raise UnknownError
        parts = [required(operands, i) for i in range(len(operands))]
        source = required(operands, 0).dtype
        if any(p.dtype != source for p in parts):
            raise UnknownError

        def pair(a: Partial, b: Partial) -> Partial:
            return _map(lambda x, y: function(x, y, source), dtype or source, a, b)

        yield reduce(pair, parts)

    return apply


def _unary(function: scalars.Unary, kinds: str) -> Operator:
    """An operator of one operand, of types of these kinds."""

    def apply(_node: Node, operands: Operands) -> Iterable[Partial]:
        part = required(operands, 0)
        if part.dtype.kind not in kinds:
            raise UnknownError
        yield _map(lambda x: function(x, part.dtype), part.dtype, part)

    return apply


def _rounded(function: Any) -> scalars.Unary:
    def apply(a: Any, dtype: np.dtype[Any]) -> scalars.Element:
        return None if a is None else scalars.fit(function(a), dtype)

    return apply


def _absolute(a: Any, dtype: np.dtype[Any]) -> scalars.Element:
    return None if a is None or isinstance(a, scalars.Extent) else scalars.fit(abs(a), dtype)


def _not(a: Any, _dtype: np.dtype[Any]) -> scalars.Element:
    return None if a is None else not a


def _mirrored(function: scalars.Binary) -> scalars.Binary:
    return lambda a, b, dtype: function(b, a, dtype)


def _denied(function: scalars.Binary) -> scalars.Binary:
    return lambda a, b, dtype: _not(function(a, b, dtype), dtype)


def _mod(node: Node, operands: Operands) -> Iterable[Partial | None]:
    function = scalars.remainder if query.attribute(node, "fmod", 0) else scalars.modulo
    return _binary(function)(node, operands)


def _cast(node: Node, operands: Operands) -> Iterable[Partial]:
    from onnx import helper

    part = required(operands, 0)
    target = np.dtype(helper.tensor_dtype_to_np_dtype(int(node.attrs["to"])))
    if target.kind not in "iufb":
        raise UnknownError
    yield _map(lambda x: scalars.convert(x, part.dtype, target), target, part)


def _where(_node: Node, operands: Operands) -> Iterable[Partial]:
    condition, a, b = (required(operands, i) for i in range(3))
    yield _map(scalars.choose, a.dtype, condition, a, b)


def _reduction(function: scalars.Binary) -> Operator:
    """A reduction; the order in which integers are taken does not matter."""

    def apply(node: Node, operands: Operands) -> Iterable[Partial]:
        """One axis after the other."""
        part = required(operands, 0)
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
    given = node.attrs.get("axes")
    if given is None and query.input_of(node, 1) is not None:
        given = required(operands, 1).integers()
    if not given:
        return [] if query.attribute(node, "noop_with_empty_axes", 0) else list(range(rank))
    if any(not -rank <= axis < rank for axis in given):
        raise UnknownError
    return sorted({int(axis) % rank for axis in given})


def required(operands: Operands, index: int) -> Partial:
    """The operand of that index.

    Raises:
        UnknownError: it is not there, or nothing is known of it.
    """
    part = operands[index] if index < len(operands) else None
    if part is None:
        raise UnknownError
    return part


def integers(node: Node, operands: Operands, name: str, index: int) -> list[int] | None:
    """Return integers given as an attribute (older opsets) or an input; None if not given.

    Raises:
        UnknownError: it is given, and not known.
    """
    if name in node.attrs:
        return [int(v) for v in node.attrs[name]]
    if query.input_of(node, index) is None:
        return None
    return required(operands, index).integers()


def _position(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise UnknownError
    return axis % rank


def _small(shape: Sequence[int]) -> list[int]:
    if any(d < 0 for d in shape) or math.prod(shape) > SMALL:
        raise UnknownError
    return list(shape)


def _identity(_node: Node, operands: Operands) -> Iterable[Partial]:
    yield required(operands, 0)


def _concat(node: Node, operands: Operands) -> Iterable[Partial]:
    parts = [required(operands, i) for i in range(len(operands))]
    axis = int(query.attribute(node, "axis", 1))
    yield Partial(np.concatenate([p.elements for p in parts], axis=axis), parts[0].dtype)


def _gather(node: Node, operands: Operands) -> Iterable[Partial]:
    part, indices = required(operands, 0), required(operands, 1)
    axis = _position(int(query.attribute(node, "axis", 0)), part.elements.ndim)
    where = np.asarray(indices.integers(), np.int64).reshape(indices.elements.shape)
    yield Partial(wrapped(np.take(part.elements, where, axis=axis)), part.dtype)


def _slice(node: Node, operands: Operands) -> Iterable[Partial]:
    part = required(operands, 0)
    starts, ends = (integers(node, operands, n, i) for i, n in ((1, "starts"), (2, "ends")))
    if starts is None or ends is None:
        raise UnknownError
    axes = integers(node, operands, "axes", 3) or range(len(starts))
    steps = integers(node, operands, "steps", 4) or [1] * len(starts)
    result = part.elements
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        place = _position(axis, result.ndim)
        taken = cells(result.shape[place], start, end, step)
        result = np.take(result, np.asarray(list(taken), np.int64), axis=place)
    yield Partial(result, part.dtype)


def cells(extent: int, start: int, end: int, step: int) -> range:
    """The positions along an axis that Slice takes.

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
    part = required(operands, 0)
    axis = _position(int(query.attribute(node, "axis", 0)), part.elements.ndim)
    extent, count = part.elements.shape[axis], len(node.outputs)
    lengths = integers(node, operands, "split", 1)
    if lengths is None:
        each = -(-extent // count)
        lengths = [min(each, extent - each * i) for i in range(count)]
    if sum(lengths) != extent or min(lengths) < 0 or len(lengths) != count:
        raise UnknownError
    bounds = np.cumsum(lengths)[:-1].tolist()
    for piece in np.split(part.elements, bounds, axis=axis):
        yield Partial(piece, part.dtype)


def _squeeze(node: Node, operands: Operands) -> Iterable[Partial]:
    part = required(operands, 0)
    rank = part.elements.ndim
    axes = integers(node, operands, "axes", 1)
    if axes is None:
        yield Partial(part.elements.squeeze(), part.dtype)
        return
    places = tuple(_position(axis, rank) for axis in axes)
    yield Partial(part.elements.squeeze(places), part.dtype)


def _unsqueeze(node: Node, operands: Operands) -> Iterable[Partial]:
    part = required(operands, 0)
    axes = integers(node, operands, "axes", 1)
    if axes is None:
        raise UnknownError
    yield Partial(np.expand_dims(part.elements, tuple(axes)), part.dtype)


def _transpose(node: Node, operands: Operands) -> Iterable[Partial]:
    part = required(operands, 0)
    yield Partial(part.elements.transpose(query.attribute(node, "perm")), part.dtype)


def _reshape(node: Node, operands: Operands) -> Iterable[Partial]:
    part = required(operands, 0)
    target = integers(node, operands, "shape", 1)
    if target is None or query.attribute(node, "allowzero", 0):
        raise UnknownError
    dims = part.elements.shape
    shape = [dims[i] if d == 0 else d for i, d in enumerate(target)]
    yield Partial(part.elements.reshape(shape), part.dtype)


def _expand(_node: Node, operands: Operands) -> Iterable[Partial]:
    part, target = required(operands, 0), required(operands, 1).integers()
    shape = np.broadcast_shapes(part.elements.shape, tuple(target))
    yield Partial(np.broadcast_to(part.elements, _small(shape)), part.dtype)


def _tile(node: Node, operands: Operands) -> Iterable[Partial]:
    part, repeats = required(operands, 0), required(operands, 1).integers()
    dims = part.elements.shape
    if len(node.inputs) != 2 or len(repeats) != len(dims):
        raise UnknownError
    _small([d * r for d, r in zip(dims, repeats, strict=True)])
    yield Partial(np.tile(part.elements, repeats), part.dtype)


def _constant_of_shape(node: Node, operands: Operands) -> Iterable[Partial]:
    shape = _small(required(operands, 0).integers())
    given = node.attrs.get("value")
    fill = np.zeros(1, np.float32) if given is None else np.asarray(given.values)
    if fill.dtype.kind not in "iufb":
        raise UnknownError
    yield Partial(np.full(shape, fill.reshape(-1)[0]).astype(object), fill.dtype)


def _range(_node: Node, operands: Operands) -> Iterable[Partial]:
    parts = [required(operands, i) for i in range(3)]
    start, limit, delta = (p.integers()[0] for p in parts)
    if delta == 0:
        raise UnknownError
    numbers = range(start, limit, delta)
    _small([len(numbers)])
    yield Partial(np.asarray(list(numbers), parts[0].dtype).astype(object), parts[0].dtype)


OPERATORS: dict[str, Operator] = {
    "Identity": _identity,
    "Concat": _concat,
    "Gather": _gather,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Expand": _expand,
    "Tile": _tile,
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
    "LessOrEqual": _binary(_denied(_mirrored(scalars.is_less)), _BOOL),
    "GreaterOrEqual": _binary(_denied(scalars.is_less), _BOOL),
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
