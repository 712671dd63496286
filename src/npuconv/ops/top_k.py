"""TopK: the largest or smallest values along an axis, and their indices."""

from __future__ import annotations

import numpy as np
import onnx

from npuconv.errors import ModelError
from npuconv.model.proto import attributes_of
from npuconv.ops.operator import register
from npuconv.tflite.draft import Draft


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a TOPK_V2 of the last stored axis."""
    attrs, rank = attributes_of(node), len(draft.shape(node.input[0]))
    count = draft.constant(node.input[1])
    if count is None or count.size != 1 or not attrs.get("largest", 1):
        raise ModelError("TFLite has no TopK of the smallest values, or of a computed number")
    axis = int(attrs.get("axis", -1)) % rank
    order = (*(k for k in range(rank) if k != axis), axis)
    k = draft.number("k", count.reshape(()).astype(np.int32))
    values, places = (draft.store(name, order) for name in node.output)
    narrow = draft.add(f"{node.output[1]}/int32", draft.graph.tensors[places].shape, np.int32)
    draft.emit("TOPK_V2", [draft.read(node.input[0], order), k], [values, narrow], "TopKV2Options")
    draft.emit("CAST", [narrow], [places], "CastOptions")


register("TopK", to_tflite=_to_tflite)
