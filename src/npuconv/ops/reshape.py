"""Reshape, Flatten, Squeeze and Unsqueeze: the same values in other extents."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx

from npuconv.model import Node, query
from npuconv.ops.channels import Join, Slots, mixed
from npuconv.ops.operator import always, register
from npuconv.ops.tape import pass_reshaped
from npuconv.tflite.draft import Draft, View, onnx_order

Dims = Sequence[int | str | None]


def _follow(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    """Follow a Reshape: channels stay an axis if the number of values before or behind stays.

    Either follows from the other, as no value is lost; but lengths may have no common name.
    """
    slots = inputs[0]
    before, after = query.shape(node.inputs[0]), query.shape(node.outputs[0])
    if slots.axis is None or before is None or after is None:
        return mixed(join, node, inputs)
    ahead, after_axis = _product(before[: slots.axis]), _product(before[slots.axis + 1 :])
    for axis, count in enumerate(after):
        if count != before[slots.axis] or count == 1:
            continue
        if _equal(ahead, _product(after[:axis])) or _equal(after_axis, _product(after[axis + 1 :])):
            return [Slots(axis, slots.numbers)]
    for axis, count in enumerate(after):
        if isinstance(count, int) and count > 1 and _equal(after_axis, _product(after[axis + 1 :])):
            return [Slots(axis, _repeated(join, slots.numbers, count))]
    return mixed(join, node, inputs)


def _repeated(join: Join, slots: Sequence[int], count: int) -> tuple[int, ...]:
    """Return ``count`` slots: the given slots repeated, or joined with a smaller period.

    The period is the greatest common divisor. Slots repeat if axes were merged into the channels,
    and are joined if channels became several axes.
    """
    period = math.gcd(len(slots), count)
    joined = [join(slots[k::period]) for k in range(period)]
    return tuple(joined * (count // period))


def _product(dims: Dims) -> tuple[int, list[str]] | None:
    """Return the product of the known extents, and the names of the others; None if unnamed."""
    if None in dims:
        return None
    number = math.prod(d for d in dims if isinstance(d, int))
    return number, sorted(d for d in dims if isinstance(d, str))


def _equal(a: tuple[int, list[str]] | None, b: tuple[int, list[str]] | None) -> bool:
    return a is not None and a == b


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a RESHAPE of values in the order of ONNX."""
    result = node.output[0]
    source = draft.flat(node.input[0])
    if draft.graph.tensors[source].shape == draft.shape(result):
        draft.alias(result, View(source, onnx_order(len(draft.shape(result)))))
        return
    output = draft.store(result, onnx_order(len(draft.shape(result))), draft.quantization(source))
    draft.reshape(source, output)


for name in ("Reshape", "Flatten", "Squeeze", "Unsqueeze"):
    register(
        name,
        passes=always,
        follow=_follow,
        adjoint=pass_reshaped,
        to_tflite=_to_tflite,
        takes_open=True,
    )
