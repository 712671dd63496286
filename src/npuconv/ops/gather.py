"""Gather along an axis, GatherElements and GatherND."""

from __future__ import annotations

from npuconv.model import query
from npuconv.model.types import Node
from npuconv.ops.channels import Join, Slots, axis_of, mixed
from npuconv.ops.operator import Operator, always, register


def _follow(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    axis, slots = axis_of(node, 0), inputs[0]
    indices = query.constant_input(node, 1)
    if slots.axis is None or axis is None or indices is None or indices.ndim > 1:
        return mixed(join, node, inputs)
    count = len(slots.numbers)
    if axis == slots.axis and not all(-count <= int(i) < count for i in indices.flat):
        return mixed(join, node, inputs)  # it cannot be run, either
    if indices.ndim == 1:
        chosen = [slots.numbers[int(i)] for i in indices] if axis == slots.axis else slots.numbers
        return [Slots(slots.axis, tuple(chosen))]
    if axis == slots.axis:
        return [Slots(None, (slots.numbers[int(indices)],))]
    return [Slots(slots.axis - (axis < slots.axis), slots.numbers)]


register(
    Operator(name="Gather", passes=always, moves=always, follow=_follow),
    Operator(name="GatherElements", moves=always),
    Operator(name="GatherND", moves=always),
)
