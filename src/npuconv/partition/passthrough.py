"""Passthrough operators: they move or compare int8 values, and the integers stay the same.

``follow`` gives the slots of their outputs from those of their inputs: a *slot* is a set of
channels with one scale. Where channels cannot be followed, they share one slot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from npuconv.model import facts, query
from npuconv.model.types import Node, Tensor
from npuconv.target import Target

# Operators whose int8 form gives the same integers as the float form on integer multiples
# of one scale. The value is the number of data inputs; None: all of them.
EXACT_ON_INT8: dict[str, int | None] = {
    "Relu": 1,
    "Clip": 1,
    "MaxPool": 1,
    "Pad": 1,
    "Reshape": 1,
    "Flatten": 1,
    "Squeeze": 1,
    "Unsqueeze": 1,
    "Transpose": 1,
    "Slice": 1,
    "Split": 1,
    "Gather": 1,
    "DepthToSpace": 1,
    "SpaceToDepth": 1,
    "Resize": 1,
    "Concat": None,
}


def data_inputs(node: Node) -> list[Tensor]:
    """Return the inputs of a passthrough operator that hold values, not shapes or bounds."""
    return list(node.inputs)[: EXACT_ON_INT8[node.op]]


def passes_int8(node: Node, int8: Collection[int]) -> bool:
    """Return whether a node passes int8 values on.

    Args:
        node: any.
        int8: ids of the tensors that are int8.
    """
    if node.op not in EXACT_ON_INT8 or not query.is_standard(node):
        return False
    if not all(id(t) in int8 for t in data_inputs(node)):
        return False
    if node.op == "Resize":
        # onnxruntime moves a Transpose through a Resize of int8 without turning its axes.
        nearest = str(query.attribute(node, "mode", "nearest")) == "nearest"
        mode = str(query.attribute(node, "coordinate_transformation_mode", ""))
        return nearest and mode != "tf_crop_and_resize" and not query.attribute(node, "axes")
    if node.op == "MaxPool":
        return len(node.outputs) == 1 and not query.attribute(node, "storage_order", 0)
    if node.op == "Pad":
        return _pads_with_constant(node)
    if node.op == "Clip":
        return all(
            query.input_of(node, i) is None or query.scalar_input(node, i) is not None
            for i in (1, 2)
        )
    return True


def _pads_with_constant(node: Node) -> bool:
    mode = str(query.attribute(node, "mode", "constant"))
    value = query.input_of(node, 2)
    return mode == "constant" and (value is None or query.scalar_input(node, 2) is not None)


def takes_as(op: str, node: Node, target: Target, *, after_conv: bool) -> bool:
    """Return whether the device runs this operator in place of a node: fused, or listed."""
    fused = target.fused_activations
    if after_conv and op in (fused.values if fused.known else fused.assume):
        return True
    operator = target.operator(op, node.domain or "")
    return operator is not None and not operator.objections(facts.settled(node))


@dataclass(frozen=True)
class Slots:
    """The slots along one axis of a tensor; without an axis there is only one slot."""

    axis: int | None
    numbers: tuple[int, ...]


def extent(tensor: Tensor, axis: int) -> int | None:
    """Return the number of entries along an axis, where it is known."""
    dims = query.shape(tensor)
    extent = dims[axis] if dims is not None and len(dims) > axis else None
    return extent if isinstance(extent, int) else None


Join = Callable[[Iterable[int]], int]
Follower = Callable[[Join, "Node", list[Slots]], list[Slots]]


def _same(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    del join
    return [inputs[0] for _ in node.outputs]


def _pooled(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    """Follow a pool, which takes the largest of neighbours along all axes but the first two."""
    beside = inputs[0].axis in (0, 1, None)
    return _same(join, node, inputs) if beside else _mixed(join, node, inputs)


def _resized(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    """Follow Pad and Resize: channels stay apart if there are as many behind them."""
    axis = inputs[0].axis
    is_kept = axis is not None and extent(node.outputs[0], axis) == len(inputs[0].numbers)
    if not is_kept and node.op == "Pad" and axis is not None:
        return _with_channels(join, node, inputs[0], axis)
    return _same(join, node, inputs) if is_kept else _mixed(join, node, inputs)


def _with_channels(join: Join, node: Node, slots: Slots, axis: int) -> list[Slots]:
    """Follow a Pad of channels: one value suits any scale, so the new ones take the nearest."""
    amounts, rank = query.constant_input(node, 1), query.rank(node.inputs[0])
    if amounts is None or rank is None or query.input_of(node, 3) is not None:
        return _mixed(join, node, [slots])
    before, after = int(amounts[axis]), int(amounts[axis + rank])
    if min(before, after) < 0:
        return _mixed(join, node, [slots])
    first, last = slots.numbers[:1] * before, slots.numbers[-1:] * after
    return [Slots(axis, (*first, *slots.numbers, *last))]


def _mixed(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    """Return one slot for everything: nothing is known about the channels."""
    slots = Slots(None, (join([s for own in inputs for s in own.numbers]),))
    return [slots for _ in node.outputs]


def _concat(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    axis = _axis(node, 0)
    if axis is None or any(own.axis is None for own in inputs):
        return _mixed(join, node, inputs)
    if all(own.axis == axis for own in inputs):
        return [Slots(axis, tuple(s for own in inputs for s in own.numbers))]
    if len({(own.axis, len(own.numbers)) for own in inputs}) > 1:
        return _mixed(join, node, inputs)
    for row in zip(*(own.numbers for own in inputs), strict=True):
        join(row)
    return [inputs[0]]


def _axis(node: Node, default: int) -> int | None:
    """Return the axis attribute, counted from the front."""
    axis = int(query.attribute(node, "axis", default))
    rank = query.rank(node.inputs[0])
    if axis >= 0:
        return axis
    return None if rank is None else axis + rank


def _transpose(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    rank = query.rank(node.inputs[0])
    perm = query.attribute(node, "perm", None)
    if perm is None and rank is not None:
        perm = list(range(rank))[::-1]
    if inputs[0].axis is None or perm is None:
        return _mixed(join, node, inputs)
    return [Slots(list(perm).index(inputs[0].axis), inputs[0].numbers)]


def _split(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    axis, slots = _axis(node, 0), inputs[0]
    if slots.axis is None or axis is None:
        return _mixed(join, node, inputs)
    if axis != slots.axis:
        return [slots for _ in node.outputs]
    parts = [extent(tensor, axis) for tensor in node.outputs]
    known = [part for part in parts if part is not None]
    if len(known) != len(parts) or sum(known) != len(slots.numbers):
        return _mixed(join, node, inputs)
    ends = [sum(known[: i + 1]) for i in range(len(known))]
    return [Slots(axis, slots.numbers[end - n : end]) for end, n in zip(ends, known, strict=True)]


def _slice(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    slots, rank = inputs[0], query.rank(node.inputs[0])
    parts = [query.constant_input(node, i) for i in (1, 2, 3, 4)]
    starts, ends, axes, steps = [None if p is None else [int(v) for v in p] for p in parts]
    if slots.axis is None or starts is None or ends is None or rank is None:
        return _mixed(join, node, inputs)
    along = axes if axes is not None else list(range(len(starts)))
    numbers = slots.numbers
    for place, axis in enumerate(along):
        if axis % rank == slots.axis:
            numbers = numbers[
                slice(*_bounds(starts[place], ends[place], steps[place] if steps else 1))
            ]
    return [Slots(slots.axis, numbers)] if numbers else _mixed(join, node, inputs)


def _bounds(start: int, end: int, step: int) -> tuple[int, int | None, int]:
    """Return Python's slice for ONNX's: an end far below zero means "to the very first"."""
    return start, None if step < 0 and end < -(2**31) else end, step


def _gather(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    axis, slots = _axis(node, 0), inputs[0]
    indices = query.constant_input(node, 1)
    if slots.axis is None or axis is None or indices is None or indices.ndim > 1:
        return _mixed(join, node, inputs)
    count = len(slots.numbers)
    if axis == slots.axis and not all(-count <= int(i) < count for i in indices.flat):
        return _mixed(join, node, inputs)  # it cannot be run, either
    if indices.ndim == 1:
        chosen = [slots.numbers[int(i)] for i in indices] if axis == slots.axis else slots.numbers
        return [Slots(slots.axis, tuple(chosen))]
    if axis == slots.axis:
        return [Slots(None, (slots.numbers[int(indices)],))]
    return [Slots(slots.axis - (axis < slots.axis), slots.numbers)]


def _reshape(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    """Follow a Reshape: channels stay an axis if as many values stand before or behind it.

    Either follows from the other, as no value is lost; but lengths may have no common name.
    """
    slots = inputs[0]
    before, after = query.shape(node.inputs[0]), query.shape(node.outputs[0])
    if slots.axis is None or before is None or after is None:
        return _mixed(join, node, inputs)
    ahead, behind = _product(before[: slots.axis]), _product(before[slots.axis + 1 :])
    for axis, extent in enumerate(after):
        if extent != before[slots.axis] or extent == 1:
            continue
        if _equal(ahead, _product(after[:axis])) or _equal(behind, _product(after[axis + 1 :])):
            return [Slots(axis, slots.numbers)]
    for axis, extent in enumerate(after):
        if isinstance(extent, int) and extent > 1 and _equal(behind, _product(after[axis + 1 :])):
            return [Slots(axis, _repeated(join, slots.numbers, extent))]
    return _mixed(join, node, inputs)


def _repeated(join: Join, slots: Sequence[int], count: int) -> tuple[int, ...]:
    """Return slots of the fastest part of channels: over and over, or those of all blocks as one.

    So many follow each other, whatever stands behind: axes that became one with the channels,
    or channels that became several axes.
    """
    period = math.gcd(len(slots), count)
    joined = [join(slots[k::period]) for k in range(period)]
    return tuple(joined * (count // period))


def _to_depth(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    """Follow a SpaceToDepth: the channels once for each cell of a block."""
    block = int(query.attribute(node, "blocksize", 1))
    if inputs[0].axis != 1:
        return _mixed(join, node, inputs)
    return [Slots(1, inputs[0].numbers * block**2)]


def _from_depth(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    """Follow a DepthToSpace: the channels of all cells of a block become one."""
    slots, cells = inputs[0], int(query.attribute(node, "blocksize", 1)) ** 2
    if slots.axis != 1 or len(slots.numbers) % cells:
        return _mixed(join, node, inputs)
    count = len(slots.numbers) // cells
    if str(query.attribute(node, "mode", "DCR")) == "DCR":
        return [Slots(1, tuple(join(slots.numbers[k::count]) for k in range(count)))]
    blocks = (slots.numbers[k : k + cells] for k in range(0, len(slots.numbers), cells))
    return [Slots(1, tuple(join(block) for block in blocks))]


Dims = Sequence[int | str | None]


def _product(dims: Dims) -> tuple[int, list[str]] | None:
    """Return the product of the known extents, and the names of the others; None if unnamed."""
    if None in dims:
        return None
    number = math.prod(d for d in dims if isinstance(d, int))
    return number, sorted(d for d in dims if isinstance(d, str))


def _equal(a: tuple[int, list[str]] | None, b: tuple[int, list[str]] | None) -> bool:
    return a is not None and a == b


def follow(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    """Return the slots of every output of a passthrough operator.

    Args:
        join: unites slots, and returns the result.
        node: the operator.
        inputs: the slots of its data inputs.
    """
    return _FOLLOW.get(node.op, _mixed)(join, node, inputs)


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
    "SpaceToDepth": _to_depth,
    "DepthToSpace": _from_depth,
}
