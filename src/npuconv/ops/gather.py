"""Gather along an axis, GatherElements and GatherND."""

from __future__ import annotations

import numpy as np
import onnx

from npuconv.errors import ModelError
from npuconv.model import Node, query
from npuconv.model.proto import attributes_of
from npuconv.ops.channels import Join, Slots, axis_of, mixed
from npuconv.ops.operator import always, register
from npuconv.ops.tape import Gradients, Tape, Visit
from npuconv.tflite.draft import Draft, onnx_order


def _follow(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    axis, slots = axis_of(node), inputs[0]
    indices = query.constant_input(node, 1)
    if slots.axis is None or axis is None or indices is None or indices.ndim > 1:
        return mixed(join, node, inputs)
    count = len(slots.numbers)
    if axis == slots.axis and not all(-count <= int(i) < count for i in indices.flat):
        return mixed(join, node, inputs)  # onnxruntime refuses such indices
    if indices.ndim == 1:
        numbers = [slots.numbers[int(i)] for i in indices] if axis == slots.axis else slots.numbers
        return [Slots(slots.axis, tuple(numbers))]
    if axis == slots.axis:
        return [Slots(None, (slots.numbers[int(indices)],))]
    return [Slots(slots.axis - (axis < slots.axis), slots.numbers)]


def _adjoint(tape: Tape, visit: Visit) -> Gradients:
    """Gather the gradients of the copies of every entry, in order, and add them up."""
    shape, index = visit.shape(), tape.value(visit.inputs[1])
    axis = visit.attributes.get("axis", 0) % max(len(shape), 1)
    if index is None or index.ndim != 1 or not index.size:
        return {}
    pads = np.zeros((2, len(shape)), np.int64)
    pads[1, axis] = 1  # entry of zeros, the gradient of entries that were not taken
    padded, parts = tape.add("Pad", visit.dy, tape.integers(pads.ravel())), []
    copies = dict(enumerate((index % shape[axis]).tolist()))
    while copies:
        places = np.full(shape[axis], index.size)
        for number, entry in reversed(copies.items()):
            places[entry] = number
        copies = {number: entry for number, entry in copies.items() if places[entry] != number}
        parts.append(tape.add("Gather", padded, tape.integers(places), axis=axis))
    return {0: tape.total(parts)}


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a GATHER or GATHER_ND; ONNX counts negative indices from the end."""
    name, result, attrs = node.input[0], node.output[0], attributes_of(node)
    shape, rank, several = draft.shape(name), len(draft.shape(result)), node.op_type == "GatherND"
    if attrs.get("batch_dims", 0) or draft.is_open(name):
        raise ModelError(f"TFLite has no {node.op_type} with batch_dims, or from an open extent")
    keeps_order = rank == len(shape) and not several
    order = draft.order([name], len(shape)) if keeps_order else onnx_order(len(shape))
    source, axis = draft.read(name, order), int(attrs.get("axis", 0)) % len(shape)
    extents = np.asarray(shape[: draft.shape(node.input[1])[-1]] if several else shape[axis])
    indices = draft.constant(node.input[1])
    if indices is not None:
        places = draft.number("indices", (indices % extents).astype(np.int32))
    else:
        signed = draft.read(node.input[1])
        extents = extents.astype(draft.graph.tensors[signed].dtype)
        inputs = [signed, draft.number("extents", extents)]
        places = draft.step("FLOOR_MOD", inputs, signed, table="FloorModOptions")
    output = draft.store(result, order if keeps_order else onnx_order(rank))
    draft.graph.tensors[output].quantization = draft.quantization(source)
    if several:
        draft.emit("GATHER_ND", [source, places], [output], "GatherNdOptions")
    else:
        draft.emit("GATHER", [source, places], [output], "GatherOptions", Axis=order.index(axis))


register(
    "Gather",
    passes=always,
    follow=_follow,
    adjoint=_adjoint,
    to_tflite=_to_tflite,
    takes_open=True,
)
register("GatherElements")
register("GatherND", to_tflite=_to_tflite)
