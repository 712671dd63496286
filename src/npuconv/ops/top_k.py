"""TopK: the largest or smallest values along an axis, and their indices."""

from __future__ import annotations

import numpy as np
import onnx

from npuconv.errors import ModelError
from npuconv.model.proto import attributes_of
from npuconv.ops.operator import Operator, register
from npuconv.tflite.draft import Draft


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a TOPK_V2 of the last stored axis; the smallest are the largest of -x.

    Raises:
        ModelError: k is not constant, or the values are not float and the smallest are asked for.
    """
    attrs, (values, indices) = attributes_of(node), node.output
    count = draft.constant(node.input[1])
    if count is None:
        raise ModelError("k is not constant")
    rank, is_largest = len(draft.shape(node.input[0])), bool(attrs.get("largest", 1))
    if not is_largest and draft.dtype(node.input[0]) != np.float32:
        raise ModelError("TFLite has no TopK of the smallest integers")
    axis = int(attrs.get("axis", -1)) % rank
    order = (*(k for k in range(rank) if k != axis), axis)
    source = draft.read(node.input[0], order)
    output, places = draft.store(values, order), draft.store(indices, order)
    shape = draft.graph.tensors[places].shape
    largest, narrow = output, draft.add(f"{indices}/int32", shape, np.int32)
    if not is_largest:
        source = draft.step("NEG", [source], source, table="NegOptions")
        largest = draft.add(f"{values}/negated", shape, np.float32)
    k = draft.number("k", np.asarray(count.item(), np.int32))
    draft.emit("TOPK_V2", [source, k], [largest, narrow], "TopKV2Options")
    if not is_largest:
        draft.emit("NEG", [largest], [output], "NegOptions")
    draft.emit("CAST", [narrow], [places], "CastOptions")


register(Operator(name="TopK", to_tflite=_to_tflite))
