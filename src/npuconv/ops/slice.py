"""Slice by constant starts, ends, axes and steps."""

from __future__ import annotations

from npuconv.model import query
from npuconv.model.types import Node
from npuconv.ops.channels import Join, Slots, mixed
from npuconv.ops.operator import Operator, always, register


def _follow(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    slots, rank = inputs[0], query.rank(node.inputs[0])
    parts = [query.constant_input(node, i) for i in (1, 2, 3, 4)]
    starts, ends, axes, steps = [None if p is None else [int(v) for v in p] for p in parts]
    if slots.axis is None or starts is None or ends is None or rank is None:
        return mixed(join, node, inputs)
    along = axes if axes is not None else list(range(len(starts)))
    numbers = slots.numbers
    for place, axis in enumerate(along):
        if axis % rank == slots.axis:
            numbers = numbers[
                slice(*_bounds(starts[place], ends[place], steps[place] if steps else 1))
            ]
    return [Slots(slots.axis, numbers)] if numbers else mixed(join, node, inputs)


def _bounds(start: int, end: int, step: int) -> tuple[int, int | None, int]:
    """Return Python's slice for ONNX's: an end far below zero means "to the very first"."""
    return start, None if step < 0 and end < -(2**31) else end, step


register(Operator(name="Slice", passes=always, moves=always, follow=_follow))
