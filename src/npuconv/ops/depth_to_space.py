"""DepthToSpace and SpaceToDepth."""

from __future__ import annotations

import numpy as np
import onnx

from npuconv.model import Node, query
from npuconv.model.proto import attributes_of
from npuconv.ops.channels import Join, Slots, mixed
from npuconv.ops.operator import always, register
from npuconv.ops.tape import Gradients, Tape, Visit
from npuconv.tflite.draft import CHANNELS_LAST, Draft


def _to_depth(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    """Follow a SpaceToDepth: it repeats the channels for each cell of a block."""
    block = int(query.attribute(node, "blocksize", 1))
    if inputs[0].axis != 1:
        return mixed(join, node, inputs)
    return [Slots(1, inputs[0].numbers * block**2)]


def _from_depth(join: Join, node: Node, inputs: list[Slots]) -> list[Slots]:
    """Follow a DepthToSpace: it joins the channels of all cells of a block."""
    slots, cells = inputs[0], int(query.attribute(node, "blocksize", 1)) ** 2
    if slots.axis != 1 or len(slots.numbers) % cells:
        return mixed(join, node, inputs)
    count = len(slots.numbers) // cells
    if str(query.attribute(node, "mode", "DCR")) == "DCR":
        return [Slots(1, tuple(join(slots.numbers[k::count]) for k in range(count)))]
    blocks = (slots.numbers[k : k + cells] for k in range(0, len(slots.numbers), cells))
    return [Slots(1, tuple(join(block) for block in blocks))]


def _adjoint(tape: Tape, visit: Visit) -> Gradients:
    size, (n, c, h, w) = visit.attributes["blocksize"], visit.shape()
    apart = tape.reshape(visit.dy, (n, c // size**2, h, size, w, size))
    channels_first = visit.attributes.get("mode", "DCR") == "CRD"
    perm = [0, 1, 3, 5, 2, 4] if channels_first else [0, 3, 5, 1, 2, 4]
    return {0: tape.reshape(tape.add("Transpose", apart, perm=perm), visit.shape())}


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a DEPTH_TO_SPACE; for the mode CRD after a GATHER of channels into the order DCR."""
    attrs = attributes_of(node)
    block = int(attrs["blocksize"])
    source = draft.read(node.input[0], CHANNELS_LAST)
    quantization = draft.quantization(source)
    channels = draft.shape(node.input[0])[1]
    if attrs.get("mode", "DCR") == "CRD" and channels > block * block:
        numbers = np.arange(channels).reshape(-1, block * block).T.reshape(-1)
        stored = draft.graph.tensors[source]
        output = draft.add(f"{stored.name}/dcr", stored.shape, stored.dtype, None, quantization)
        draft.take(source, output, 3, numbers)
        source = output
    output = draft.store(node.output[0], CHANNELS_LAST, quantization)
    draft.emit("DEPTH_TO_SPACE", [source], [output], "DepthToSpaceOptions", BlockSize=block)


def _space_to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a SPACE_TO_DEPTH; it orders channels as ONNX does."""
    source = draft.read(node.input[0], CHANNELS_LAST)
    output = draft.store(node.output[0], CHANNELS_LAST, draft.quantization(source))
    block = int(attributes_of(node)["blocksize"])
    draft.emit("SPACE_TO_DEPTH", [source], [output], "SpaceToDepthOptions", BlockSize=block)


register("DepthToSpace", passes=always, follow=_from_depth, adjoint=_adjoint, to_tflite=_to_tflite)
register("SpaceToDepth", passes=always, follow=_to_depth, to_tflite=_space_to_tflite)
