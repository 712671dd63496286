"""Slice by constant starts, ends, axes and steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from npuconv.errors import ModelError
from npuconv.model import Node, query
from npuconv.ops.channels import Join, Slots, mixed
from npuconv.ops.operator import always, register
from npuconv.ops.tape import Gradients, Tape, Visit
from npuconv.tflite.draft import Draft
from npuconv.tflite.flatbuffer import OPEN

_FAR = 2**31 - 1  # end beyond every extent


def _follow(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    slots, rank = inputs[0], query.rank(node.inputs[0])
    parts = [query.constant_input(node, i) for i in (1, 2, 3, 4)]
    starts, stops, axes, steps = [None if p is None else [int(v) for v in p] for p in parts]
    if slots.axis is None or starts is None or stops is None or rank is None:
        return mixed(join, node, inputs)
    sliced_axes = axes if axes is not None else list(range(len(starts)))
    numbers = slots.numbers
    for place, axis in enumerate(sliced_axes):
        if axis % rank == slots.axis:
            step = steps[place] if steps else 1
            # ONNX writes "down to the first value" as an end far below zero.
            stop = None if step < 0 and stops[place] < -(2**31) else stops[place]
            numbers = numbers[starts[place] : stop : step]
    return [Slots(slots.axis, numbers)] if numbers else mixed(join, node, inputs)


def _adjoint(tape: Tape, visit: Visit) -> Gradients:
    values = [v for name in visit.inputs[1:] if (v := tape.value(name)) is not None]
    shape, count = visit.shape(), len(visit.inputs) - 1
    if not 3 <= len(values) == count or (count > 3 and np.any(values[3] != 1)):
        return {}
    pads = np.zeros((2, len(shape)), np.int64)
    for start, axis in zip(values[0], values[2], strict=True):
        n = shape[axis]
        first = min(max(int(start) + (n if start < 0 else 0), 0), n)
        pads[:, axis] = first, n - first - visit.output_shape[axis]
    return {0: tape.add("Pad", visit.dy, tape.integers(pads.ravel()))}


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a SLICE, or a STRIDED_SLICE where steps are not 1."""
    name, result = node.input[0], node.output[0]
    shape, rank = draft.shape(name), len(draft.shape(name))
    values = [draft.constant(n) if n else None for n in (*node.input[1:5], "", "")][:4]
    if values[0] is None or values[1] is None:
        raise ModelError("starts or ends are not constant")
    axes = np.arange(len(values[0])) if values[2] is None else values[2] % rank
    steps = np.ones(len(values[0]), int) if values[3] is None else values[3]
    parts = [slice(None)] * rank
    for start, end, axis, step in zip(values[0], values[1], axes, steps, strict=True):
        if shape[axis] == OPEN and min(start, end, step) < 0:
            raise ModelError("TFLite needs the extents that starts and ends count back from")
        last = None if step < 0 and end < -shape[axis] else int(end)
        parts[axis] = slice(int(start), last, int(step))
    source, order = draft.stored_view(name)
    output = draft.store(result, order, draft.quantization(source))
    extents = [_FAR if extent == OPEN else extent for extent in shape]
    ranges = [range(extents[axis])[parts[axis]] for axis in order]
    cut(draft, source, output, ranges)


def cut(draft: Draft, source: int, output: int, ranges: Sequence[range]) -> None:
    """Append a SLICE or STRIDED_SLICE, with a range of each stored axis."""
    starts = draft.number("begin", np.asarray([r.start for r in ranges], np.int32))
    if all(r.step == 1 for r in ranges) and OPEN not in draft.graph.tensors[source].shape:
        sizes = draft.number("size", np.asarray([len(r) for r in ranges], np.int32))
        draft.emit("SLICE", [source, starts, sizes], [output], "SliceOptions")
        return
    # Only the mask can express an end before the first element.
    mask = sum(1 << k for k, r in enumerate(ranges) if r.stop < 0)
    stops = draft.number("end", np.asarray([max(r.stop, 0) for r in ranges], np.int32))
    steps = draft.number("strides", np.asarray([r.step for r in ranges], np.int32))
    options = {"BeginMask": 0, "EndMask": mask}
    inputs = [source, starts, stops, steps]
    draft.emit("STRIDED_SLICE", inputs, [output], "StridedSliceOptions", **options)


register(
    "Slice",
    passes=always,
    follow=_follow,
    adjoint=_adjoint,
    to_tflite=_to_tflite,
    takes_open=True,
)
