"""Concat: movement if all inputs have the scale of the result, else each is requantized."""

from __future__ import annotations

import onnx

from npuconv.model import Node
from npuconv.model.proto import attributes_of
from npuconv.ops.channels import Join, Slots, axis_of, mixed
from npuconv.ops.operator import Arguments, W, always, register, values_of
from npuconv.ops.tape import Gradients, Tape, Visit, sliced
from npuconv.tflite.draft import Draft
from npuconv.tflite.flatbuffer import enumerator


def _follow(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    axis = axis_of(node)
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


def _kernel(call: Arguments[W]) -> W:
    *sources, y_at = call.scales
    first, *later_parts = (
        call.rescaling.requantized(x, x_at, y_at)
        for x, x_at in zip(call.values, sources, strict=True)
    )
    return first.concat(later_parts, int(call.attributes.get("axis", 1)))


def _adjoint(tape: Tape, visit: Visit) -> Gradients:
    axis, start, gradients = visit.attributes["axis"], 0, {}
    for k in range(len(visit.inputs)):
        stop = start + visit.shape(k)[axis]
        gradients[k], start = sliced(tape, visit.dy, {axis: (start, stop)}), stop
    return gradients


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a CONCATENATION in the order of its first input; on int8 it has one scale."""
    result, inputs = node.output[0], list(node.input)
    rank, encoding = len(draft.shape(result)), draft.scales.get(result)
    for place, name in enumerate(inputs):
        scale = draft.scales.get(name)
        if encoding is not None and scale is not None and not scale.equals(encoding):
            inputs[place] = draft.sibling(name, "moved", encoding)
            if draft.view(inputs[place]) is None:
                draft.requantize(name, inputs[place])
    order = draft.order(inputs, rank)
    sources = [draft.read(name, order) for name in inputs]
    output = draft.store(result, order, draft.quantization(sources[0]))
    axis = order.index(int(attributes_of(node)["axis"]) % rank)
    none = enumerator("ActivationFunctionType", "NONE")
    options = {"Axis": axis, "FusedActivationFunction": none}
    draft.emit("CONCATENATION", sources, [output], "ConcatenationOptions", **options)


register(
    "Concat",
    is_defined=_is_defined,
    data=None,
    passes=always,
    follow=_follow,
    kernel=_kernel,
    adjoint=_adjoint,
    integer_form="QLinearConcat",
    in_tflite=always,
    to_tflite=_to_tflite,
    takes_open=True,
)
