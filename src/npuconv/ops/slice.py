"""Slice by constant starts, ends, axes and steps."""

from __future__ import annotations

import numpy as np

from npuconv.model import query
from npuconv.model.types import Node
from npuconv.ops.channels import Join, Slots, mixed
from npuconv.ops.operator import Operator, always, register
from npuconv.ops.tape import Gradients, Tape, Visit


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


def _adjoint(tape: Tape, at: Visit) -> Gradients:
    values = [v for name in at.inputs[1:] if (v := tape.value(name)) is not None]
    shape, count = at.shape(), len(at.inputs) - 1
    if not 3 <= len(values) == count or (count > 3 and np.any(values[3] != 1)):
        return {}
    pads = np.zeros((2, len(shape)), np.int64)
    for start, axis in zip(values[0], values[2], strict=True):
        n = shape[axis]
        first = min(max(int(start) + (n if start < 0 else 0), 0), n)
        pads[:, axis] = first, n - first - at.output_shape[axis]
    return {0: tape.add("Pad", at.dy, tape.integers(pads.ravel()))}


register(Operator(name="Slice", adjoint=_adjoint, passes=always, moves=always, follow=_follow))
