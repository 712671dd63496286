"""Propagation of channels through operators that pass int8 values on.

Each follower takes the slots of the inputs of an operator and returns those of its outputs.
Where it cannot follow the channels, they share one slot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from npuconv.model import query

if TYPE_CHECKING:
    from npuconv.model.types import Node, Tensor


@dataclass(frozen=True)
class Line:
    """The slots along one axis of a tensor; without an axis there is only one slot."""

    axis: int | None
    slots: tuple[int, ...]


def extent(tensor: Tensor, axis: int) -> int | None:
    """The number of entries along an axis, where it is known."""
    dims = query.shape(tensor)
    extent = dims[axis] if dims is not None and len(dims) > axis else None
    return extent if isinstance(extent, int) else None


Join = Callable[[Iterable[int]], int]
Follower = Callable[[Join, "Node", list[Line]], list[Line]]


def _same(join: Join, node: Node, lines: list[Line]) -> list[Line]:
    del join
    return [lines[0] for _ in node.outputs]


def _pooled(join: Join, node: Node, lines: list[Line]) -> list[Line]:
    """A pool takes the largest of neighbours along every axis but the first two."""
    beside = lines[0].axis in (0, 1, None)
    return _same(join, node, lines) if beside else _mixed(join, node, lines)


def _resized(join: Join, node: Node, lines: list[Line]) -> list[Line]:
    """Pad and Resize leave the channels alone if there are as many behind them."""
    axis = lines[0].axis
    kept = axis is not None and extent(node.outputs[0], axis) == len(lines[0].slots)
    return _same(join, node, lines) if kept else _mixed(join, node, lines)


def _mixed(join: Join, node: Node, lines: list[Line]) -> list[Line]:
    """Return one slot for everything: nothing is known about the channels."""
    one = Line(None, (join([s for line in lines for s in line.slots]),))
    return [one for _ in node.outputs]


def _concat(join: Join, node: Node, lines: list[Line]) -> list[Line]:
    axis = _axis(node, 0)
    if axis is None or any(line.axis is None for line in lines):
        return _mixed(join, node, lines)
    if all(line.axis == axis for line in lines):
        return [Line(axis, tuple(s for line in lines for s in line.slots))]
    if len({(line.axis, len(line.slots)) for line in lines}) > 1:
        return _mixed(join, node, lines)
    for row in zip(*(line.slots for line in lines), strict=True):
        join(row)
    return [lines[0]]


def _axis(node: Node, default: int) -> int | None:
    """The axis attribute, counted from the front."""
    axis = int(query.attribute(node, "axis", default))
    rank = query.rank(node.inputs[0])
    if axis >= 0:
        return axis
    return None if rank is None else axis + rank


def _transpose(join: Join, node: Node, lines: list[Line]) -> list[Line]:
    rank = query.rank(node.inputs[0])
    perm = query.attribute(node, "perm", None)
    if perm is None and rank is not None:
        perm = list(range(rank))[::-1]
    if lines[0].axis is None or perm is None:
        return _mixed(join, node, lines)
    return [Line(list(perm).index(lines[0].axis), lines[0].slots)]


def _split(join: Join, node: Node, lines: list[Line]) -> list[Line]:
    axis, line = _axis(node, 0), lines[0]
    if line.axis is None or axis is None:
        return _mixed(join, node, lines)
    if axis != line.axis:
        return [line for _ in node.outputs]
    parts = [extent(tensor, axis) for tensor in node.outputs]
    known = [part for part in parts if part is not None]
    if len(known) != len(parts) or sum(known) != len(line.slots):
        return _mixed(join, node, lines)
    ends = [sum(known[: i + 1]) for i in range(len(known))]
    return [Line(axis, line.slots[end - n : end]) for end, n in zip(ends, known, strict=True)]


def _slice(join: Join, node: Node, lines: list[Line]) -> list[Line]:
    line, rank = lines[0], query.rank(node.inputs[0])
    parts = [query.constant_input(node, i) for i in (1, 2, 3, 4)]
    starts, ends, axes, steps = [None if p is None else [int(v) for v in p] for p in parts]
    if line.axis is None or starts is None or ends is None or rank is None:
        return _mixed(join, node, lines)
    along = axes if axes is not None else list(range(len(starts)))
    kept = line.slots
    for place, axis in enumerate(along):
        if axis % rank == line.axis:
            kept = kept[slice(*_bounds(starts[place], ends[place], steps[place] if steps else 1))]
    return [Line(line.axis, kept)] if kept else _mixed(join, node, lines)


def _bounds(start: int, end: int, step: int) -> tuple[int, int | None, int]:
    """Python's slice for ONNX's: an end far below zero means "to the very first"."""
    return start, None if step < 0 and end < -(2**31) else end, step


def _gather(join: Join, node: Node, lines: list[Line]) -> list[Line]:
    axis, line = _axis(node, 0), lines[0]
    indices = query.constant_input(node, 1)
    if line.axis is None or axis is None or indices is None or indices.ndim > 1:
        return _mixed(join, node, lines)
    count = len(line.slots)
    if axis == line.axis and not all(-count <= int(i) < count for i in indices.flat):
        return _mixed(join, node, lines)  # it cannot be run, either
    if indices.ndim == 1:
        chosen = [line.slots[int(i)] for i in indices] if axis == line.axis else line.slots
        return [Line(line.axis, tuple(chosen))]
    if axis == line.axis:
        return [Line(None, (line.slots[int(indices)],))]
    return [Line(line.axis - (axis < line.axis), line.slots)]


def _reshape(join: Join, node: Node, lines: list[Line]) -> list[Line]:
    """The channels stay an axis of their own if as many values stand before or behind it.

    Either follows from the other, as no value is lost; but lengths may have no common name.
    """
    line = lines[0]
    before, after = query.shape(node.inputs[0]), query.shape(node.outputs[0])
    if line.axis is None or before is None or after is None:
        return _mixed(join, node, lines)
    ahead, behind = _product(before[: line.axis]), _product(before[line.axis + 1 :])
    for axis, extent in enumerate(after):
        if extent != before[line.axis] or extent == 1:
            continue
        if _equal(ahead, _product(after[:axis])) or _equal(behind, _product(after[axis + 1 :])):
            return [Line(axis, line.slots)]
    return _mixed(join, node, lines)


Dims = Sequence[int | str | None]


def _product(dims: Dims) -> tuple[int, list[str]] | None:
    """The known part, and the names of the rest; None where one has no name."""
    if None in dims:
        return None
    number = math.prod(d for d in dims if isinstance(d, int))
    return number, sorted(d for d in dims if isinstance(d, str))


def _equal(a: tuple[int, list[str]] | None, b: tuple[int, list[str]] | None) -> bool:
    return a is not None and a == b


def follow(join: Join, node: Node, lines: list[Line]) -> list[Line]:
    """The slots of every result of a carried operator.

    Args:
        join: lets slots be one, and gives that.
        node: the operator.
        lines: the slots of its data inputs.
    """
    return _FOLLOW.get(node.op, _mixed)(join, node, lines)


_FOLLOW: dict[str, Follower] = {
    "Relu": _same,
    "Clip": _same,
    "MaxPool": _pooled,
    "Pad": _resized,
    "Resize": _resized,
    "Concat": _concat,
    "Transpose": _transpose,
    "Split": _split,
    "Slice": _slice,
    "Gather": _gather,
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Squeeze": _reshape,
    "Unsqueeze": _reshape,
}
