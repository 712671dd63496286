"""Copies of values: Identity, Cast, Expand, Tile."""

from __future__ import annotations

import numpy as np
import onnx

from npuconv.ops.operator import register
from npuconv.ops.tape import pass_reshaped
from npuconv.tflite.draft import Draft, onnx_order


def _identity_to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Give a tensor its second name."""
    draft.alias(node.output[0], draft.stored_view(node.input[0]))


def _cast_to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a CAST, unless the tensor already has the type."""
    if draft.dtype(node.input[0]) == draft.dtype(node.output[0]):
        _identity_to_tflite(draft, node)
        return
    source, order = draft.stored_view(node.input[0])
    output = draft.store(node.output[0], order)
    draft.emit("CAST", [source], [output], "CastOptions")


def _expand_to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a BROADCAST_TO the shape that is known."""
    shape = draft.shape(node.output[0])
    source = draft.read(node.input[0], onnx_order(len(shape)), len(shape))
    output = draft.store(node.output[0], onnx_order(len(shape)))
    extents = draft.number("shape", np.asarray(shape, np.int32))
    draft.emit("BROADCAST_TO", [source, extents], [output], "BroadcastToOptions")


register("Identity", adjoint=pass_reshaped, to_tflite=_identity_to_tflite, takes_open=True)
register("Dropout", adjoint=pass_reshaped, to_tflite=_identity_to_tflite)
register("Cast", adjoint=pass_reshaped, to_tflite=_cast_to_tflite, takes_open=True)
register("CastLike", to_tflite=_cast_to_tflite)
register("Expand", to_tflite=_expand_to_tflite)
register("Tile")
