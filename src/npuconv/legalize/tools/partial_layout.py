"""The operators that move elements of shapes about, without computing with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from npuconv.legalize.tools.partial import Partial, UnknownError, wrapped
from npuconv.model import query
from npuconv.model.skeleton import MAX_SHAPE_VALUES

if TYPE_CHECKING:
    from npuconv.model.types import Node

    Operands = Sequence[Partial | None]
    Operator = Callable[[Node, Operands], Iterable[Partial | None]]


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
    if any(d < 0 for d in shape) or math.prod(shape) > MAX_SHAPE_VALUES:
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


LAYOUTS: dict[str, Operator] = {
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
}
