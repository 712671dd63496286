"""Amounts, fill value and mode of a Pad node, at any version of the operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.model import query

if TYPE_CHECKING:
    from npuconv.model.types import Node


def amounts(node: Node) -> tuple[tuple[int, int], ...] | None:
    """(begin, end) for every axis, or None where they are not constant.

    Pad-1 calls them ``paddings``, Pad-2 has an attribute, Pad-11 an input, Pad-18 ``axes``.
    """
    flat = _flat(node)
    if flat is None or len(flat) % 2:
        return None
    half = len(flat) // 2
    pairs = tuple(zip(flat[:half], flat[half:], strict=True))
    return _spread(node, pairs)


def fill(node: Node) -> float | None:
    """The number it pads with in mode ``constant``; None where that is computed."""
    if query.input_of(node, 2) is not None:
        return query.scalar_input(node, 2)
    return float(query.attribute(node, "value", 0.0))


def mode(node: Node) -> str:
    """constant, reflect, edge or wrap."""
    return str(query.attribute(node, "mode", "constant"))


def is_zero_fill(node: Node) -> bool:
    """Return whether the node pads with the constant 0."""
    return mode(node) == "constant" and fill(node) == 0


def _flat(node: Node) -> list[int] | None:
    written = query.attribute(node, "pads", query.attribute(node, "paddings"))
    if written is not None:
        return [int(v) for v in written]
    array = query.constant_input(node, 1)
    return None if array is None else [int(v) for v in array.reshape(-1)]


def _spread(node: Node, pairs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...] | None:
    if query.input_of(node, 3) is None:
        return pairs
    axes, rank = query.constant_input(node, 3), query.rank(node.inputs[0])
    if axes is None or rank is None or axes.size != len(pairs):
        return None
    places = [int(axis) for axis in axes.reshape(-1)]
    if any(not -rank <= axis < rank for axis in places):
        return None
    result = [(0, 0)] * rank
    for axis, pair in zip(places, pairs, strict=True):
        result[axis] = pair
    return tuple(result)
