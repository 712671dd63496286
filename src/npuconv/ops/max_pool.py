"""MaxPool."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from npuconv.arithmetic.whole import ceil_div
from npuconv.errors import ModelError
from npuconv.model import Node, query
from npuconv.model.proto import attributes_of
from npuconv.ops.channels import Join, Slots, mixed, slots_of_first_input
from npuconv.ops.operator import register
from npuconv.ops.tape import PREFIX, Gradients, Tape, Visit
from npuconv.tflite.draft import CHANNELS_LAST, Draft
from npuconv.tflite.windows import padded, pads_of, pool_options


def _passes(node: Node) -> bool:
    return len(node.outputs) == 1 and not query.attribute(node, "storage_order", 0)


def _follow(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    """Return the slots of the input, if they are not along an axis that the windows cover."""
    is_along_channels = inputs[0].axis in (0, 1, None)
    return (slots_of_first_input if is_along_channels else mixed)(join, node, inputs)


def _adjoint(tape: Tape, visit: Visit) -> Gradients:
    """Add each gradient at the place of its maximum; overlapping windows take turns."""
    if len(visit.node.output) == 1:
        visit.node.output.append(f"{PREFIX}/indices/{visit.y}")
    kernel = visit.attributes["kernel_shape"]
    ones = [1] * len(kernel)
    strides, dilations = (visit.attributes.get(name, ones) for name in ("strides", "dilations"))
    triples = zip(kernel, strides, dilations, strict=True)
    turns = [ceil_div((k - 1) * d + 1, s) for k, s, d in triples]
    shape = tape.integers(visit.shape())
    attributes = {"kernel_shape": ones, "strides": ones}  # the indices say where values go
    parts = []
    for place in np.ndindex(*turns):
        if all(start < n for start, n in zip(place, visit.output_shape[2:], strict=True)):
            pair = [_strided(tape, name, place, turns) for name in (visit.dy, visit.node.output[1])]
            parts.append(tape.add("MaxUnpool", *pair, shape, **attributes))
    return {0: tape.total(parts)}


def _strided(tape: Tape, source: str, starts: Sequence[int], steps: Sequence[int]) -> str:
    """Take every n-th value along the spatial axes."""
    if max(steps) == 1:
        return source
    rows = (starts, [2**31 - 1] * len(steps), range(2, 2 + len(steps)), steps)
    return tape.add("Slice", source, *(tape.integers(list(row)) for row in rows))


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a MAX_POOL_2D, whose padding is never the largest."""
    attrs = attributes_of(node)
    source = draft.read(node.input[0], CHANNELS_LAST)
    stored = draft.graph.tensors[source]
    if any(d != 1 for d in attrs.get("dilations", (1, 1))):
        raise ModelError("TFLite has no MaxPool with dilation")
    dtype = stored.dtype
    lowest = np.iinfo(dtype).min if dtype.kind == "i" else np.finfo(dtype).min
    kernel, strides = attrs["kernel_shape"], attrs.get("strides", (1, 1))
    fill = np.asarray(lowest, dtype)
    source, padding = padded(draft, source, kernel, strides, pads_of(attrs), fill)
    output = draft.store(node.output[0], CHANNELS_LAST, draft.quantization(source))
    options = pool_options(kernel, strides, padding)
    draft.emit("MAX_POOL_2D", [source], [output], "Pool2DOptions", **options)


register("MaxPool", passes=_passes, follow=_follow, adjoint=_adjoint, to_tflite=_to_tflite)
