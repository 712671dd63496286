"""Concat: movement if all inputs have the scale of the result, else each is requantized."""

from __future__ import annotations

from collections.abc import Sequence

from npuconv.arithmetic.rescaling import Rescaling, TensorScale
from npuconv.arithmetic.whole import W
from npuconv.model.types import Node
from npuconv.ops.channels import Join, Slots, axis_of, mixed
from npuconv.ops.operator import Attributes, Operator, always, register, values_of
from npuconv.ops.tape import Gradients, Tape, Visit, sliced


def _follow(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    axis = axis_of(node, 0)
    if axis is None or any(slots.axis is None for slots in inputs):
        return mixed(join, node, inputs)
    if all(slots.axis == axis for slots in inputs):
        return [Slots(axis, tuple(n for slots in inputs for n in slots.numbers))]
    if len({(slots.axis, len(slots.numbers)) for slots in inputs}) > 1:
        return mixed(join, node, inputs)
    for row in zip(*(slots.numbers for slots in inputs), strict=True):
        join(row)
    return [inputs[0]]


def _is_defined(node: Node) -> bool:
    return len(values_of(node)) == len(node.inputs)


def _kernel(
    attributes: Attributes, values: Sequence[W], scales: Sequence[TensorScale], how: Rescaling
) -> W:
    *sources, y_at = scales
    first, *others = (
        how.requantized(x, x_at, y_at) for x, x_at in zip(values, sources, strict=True)
    )
    return first.beside(others, int(attributes.get("axis", 1)))


def _adjoint(tape: Tape, at: Visit) -> Gradients:
    axis, start, gradients = at.attributes["axis"], 0, {}
    for k in range(len(at.inputs)):
        stop = start + at.shape(k)[axis]
        gradients[k], start = sliced(tape, at.dy, {axis: (start, stop)}), stop
    return gradients


register(
    Operator(
        name="Concat",
        adjoint=_adjoint,
        data=None,
        passes=always,
        moves=always,
        follow=_follow,
        is_defined=_is_defined,
        kernel=_kernel,
        integer_form="QLinearConcat",
        in_tflite=always,
    )
)
