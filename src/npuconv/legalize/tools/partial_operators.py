"""The operators that shapes are computed with, on elements that may be unknown."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from npuconv.legalize.tools import partial_scalars as scalars
from npuconv.legalize.tools.partial import Partial, UnknownError, wrapped
from npuconv.legalize.tools.partial_layout import LAYOUTS, required
from npuconv.model import query
from npuconv.model.skeleton import MAX_SHAPE_VALUES

if TYPE_CHECKING:
    from npuconv.model.types import Node

    Operands = Sequence[Partial | None]
    Operator = Callable[[Node, Operands], Iterable[Partial | None]]

_BOOL = np.dtype(bool)


def _map(function: Any, dtype: np.dtype[Any], *operands: Partial) -> Partial:
    """A function of elements, on operands stretched to a common shape."""
    arrays = [p.elements for p in operands]
    if math.prod(np.broadcast_shapes(*(a.shape for a in arrays))) > MAX_SHAPE_VALUES:
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


OPERATORS: dict[str, Operator] = {
    **LAYOUTS,
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
