"""Split along an axis."""

from __future__ import annotations

import numpy as np
import onnx

from npuconv.model import Node
from npuconv.model.proto import attributes_of
from npuconv.ops.channels import Join, Slots, axis_of, extent, mixed
from npuconv.ops.operator import always, register
from npuconv.ops.slice import cut
from npuconv.ops.tape import Gradients, Tape, Visit
from npuconv.tflite.draft import Draft


def _follow(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    axis, slots = axis_of(node), inputs[0]
    if slots.axis is None or axis is None:
        return mixed(join, node, inputs)
    if axis != slots.axis:
        return [slots for _ in node.outputs]
    parts = [extent(tensor, axis) for tensor in node.outputs]
    lengths = [part for part in parts if part is not None]
    if len(lengths) != len(parts) or sum(lengths) != len(slots.numbers):
        return mixed(join, node, inputs)
    stops = [sum(lengths[: i + 1]) for i in range(len(lengths))]
    return [
        Slots(axis, slots.numbers[end - n : end]) for end, n in zip(stops, lengths, strict=True)
    ]


def _adjoint(tape: Tape, visit: Visit) -> Gradients:
    parts = [
        gradient or tape.constant(np.zeros(tape.shapes[name]))
        for gradient, name in zip(visit.gradients, visit.node.output, strict=True)
    ]
    return {0: tape.add("Concat", *parts, axis=visit.attributes.get("axis", 0))}


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a SLICE for every output."""
    name = node.input[0]
    shape = draft.shape(name)
    axis = int(attributes_of(node).get("axis", 0)) % len(shape)
    (source, order), start = draft.stored_view(name), 0
    for result in node.output:
        stop = start + draft.shape(result)[axis]
        output = draft.store(result, order, draft.quantization(source))
        full = [range(shape[k]) for k in order]
        full[order.index(axis)] = range(start, stop)
        cut(draft, source, output, full)
        start = stop


register("Split", passes=always, follow=_follow, adjoint=_adjoint, to_tflite=_to_tflite)
