"""Pad with a constant."""

from __future__ import annotations

import numpy as np
import onnx

from npuconv.errors import ModelError
from npuconv.model import Node, query
from npuconv.model.proto import attributes_of
from npuconv.ops.channels import Join, Slots, extent, mixed, resized
from npuconv.ops.operator import register
from npuconv.ops.quantize_linear import pads_later
from npuconv.ops.tape import Gradients, Tape, Visit, sliced
from npuconv.tflite.draft import Draft
from npuconv.tflite.flatbuffer import enumerator
from npuconv.tflite.windows import ends_of, pad


def _passes(node: Node) -> bool:
    mode = str(query.attribute(node, "mode", "constant"))
    value = query.input_of(node, 2)
    return mode == "constant" and (value is None or query.scalar_input(node, 2) is not None)


def _follow(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    """Keep channels apart; a Pad of channels adds some with the scale of the nearest.

    One value suits any scale.
    """
    slots = inputs[0]
    if slots.axis is None or extent(node.outputs[0], slots.axis) == len(slots.numbers):
        return resized(join, node, inputs)
    amounts, rank = query.constant_input(node, 1), query.rank(node.inputs[0])
    if amounts is None or rank is None or query.input_of(node, 3) is not None:
        return mixed(join, node, inputs)
    before, after = int(amounts[slots.axis]), int(amounts[slots.axis + rank])
    if min(before, after) < 0:
        return mixed(join, node, inputs)
    first, last = slots.numbers[:1] * before, slots.numbers[-1:] * after
    return [Slots(slots.axis, (*first, *slots.numbers, *last))]


def _adjoint(tape: Tape, visit: Visit) -> Gradients:
    pads, shape = tape.value(visit.inputs[1]), visit.shape()
    mirrored = visit.attributes.get("mode", "constant") != "constant"
    if pads is None or pads.size != 2 * len(shape) or pads.min() < 0 or mirrored:
        return {}
    spans = {k: (int(p), int(p) + n) for k, (p, n) in enumerate(zip(pads, shape, strict=False))}
    return {0: sliced(tape, visit.dy, spans)}


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a PAD, a PADV2 where the value is not 0, or a MIRROR_PAD."""
    if pads_later(draft, node):
        return
    result = node.output[0]
    source, order = draft.stored_view(node.input[0])
    amounts = ends_of(draft, node, len(order))[list(order)].astype(np.int32)
    output = draft.store(result, order, draft.quantization(source))
    mode = attributes_of(node).get("mode", "constant")
    if mode == "reflect" and (amounts >= 0).all():
        extents = draft.graph.tensors[source].shape
        if (amounts.max(axis=1) >= np.maximum(extents, 1)).any():
            raise ModelError("TFLite reflects fewer values than an axis has")
        kind = enumerator("MirrorPadMode", "REFLECT")
        places = draft.number("paddings", amounts)
        draft.emit("MIRROR_PAD", [source, places], [output], "MirrorPadOptions", Mode=kind)
        return
    if mode != "constant" or (amounts < 0).any():
        raise ModelError(f"TFLite has no Pad of mode {mode!r}, or with negative pads")
    fill = draft.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    if fill is None:
        fill = np.zeros((), draft.graph.tensors[source].dtype)
    quantization = draft.quantization(source)
    zero = 0 if quantization is None else quantization.zero
    pad(draft, source, output, amounts, None if fill.item() == zero else fill)


register("Pad", bounds=(2,), passes=_passes, follow=_follow, adjoint=_adjoint, to_tflite=_to_tflite)
