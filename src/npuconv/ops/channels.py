"""Channels with one scale, followed from the inputs of an operator to its outputs.

A *slot* is a set of channels with one scale. Where channels cannot be followed, they share one
slot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from npuconv.model import Node, Tensor, query
from npuconv.records import dataclass


@dataclass(frozen=True)
class Slots:
    """The slots along one axis of a tensor; without an axis there is only one slot."""

    axis: int | None
    numbers: tuple[int, ...]


def extent(tensor: Tensor, axis: int) -> int | None:
    """Return the number of entries along an axis; None if it is not known."""
    dims = query.shape(tensor)
    count = dims[axis] if dims is not None and len(dims) > axis else None
    return count if isinstance(count, int) else None


Join = Callable[[Iterable[int]], int]
Follower = Callable[[Join, Node, list[Slots]], list[Slots]]


def slots_of_first_input(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    """Return the slots of the first input for every output."""
    del join
    return [inputs[0] for _ in node.outputs]


def mixed(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    """Return one slot for all channels, which cannot be traced."""
    slots = Slots(None, (join([number for part in inputs for number in part.numbers]),))
    return [slots for _ in node.outputs]


def resized(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    """Keep channels apart if the output has as many."""
    axis = inputs[0].axis
    is_kept = axis is not None and extent(node.outputs[0], axis) == len(inputs[0].numbers)
    return slots_of_first_input(join, node, inputs) if is_kept else mixed(join, node, inputs)


def axis_of(node: Node) -> int | None:
    """Return the axis attribute, by default 0, counted from the front."""
    axis = int(query.attribute(node, "axis", 0))
    rank = query.rank(node.inputs[0])
    if axis >= 0:
        return axis
    return None if rank is None else axis + rank
