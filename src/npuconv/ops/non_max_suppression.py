"""NonMaxSuppression: the boxes that no better box covers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from npuconv.errors import ModelError
from npuconv.model.proto import attributes_of
from npuconv.ops.operator import register
from npuconv.tflite.draft import Draft, onnx_order
from npuconv.tflite.flatbuffer import OPEN


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a NON_MAX_SUPPRESSION_V4 of one class, and a SLICE by the number of boxes.

    Ranks replace the scores: TOPK_V2 puts the lower index of equal scores first, as ONNX does.
    Zeros before the indices are the numbers of image and class.
    """
    names, shape = [*node.input, "", "", ""][2:5], draft.shape(node.input[1])
    pairs = zip(names, (0, 0.0, -np.inf), strict=True)
    limits = [draft.constant(n) if n else np.asarray(default) for n, default in pairs]
    is_constant = all(value is not None and value.size == 1 for value in limits)
    if not is_constant or shape[:-1] != (1, 1) or attributes_of(node).get("center_point_box", 0):
        raise ModelError("TFLite suppresses boxes of one class by corners and constant limits")
    limit, overlap, least = (np.asarray(value).item() for value in limits)
    overlap = np.nextafter(np.float32(overlap), np.float32(2))  # TFLite suppresses at the limit
    if limit < 1 or overlap > 1:
        raise ModelError("TFLite has no limits of 0 boxes, or of an overlap of 1")

    def add(shape: tuple[int, ...], dtype: Any = np.int32) -> int:
        return draft.add(f"{node.output[0]}/part", shape, dtype)

    def step(code: str, result: int, *inputs: Any) -> int:
        numbers = [k if isinstance(k, int) else draft.number(code, k) for k in inputs]
        draft.emit(code, numbers, [result], f"{code.title().replace('_', '')}Options")
        return result

    real, zero, length = np.float32, np.int32(0), shape[-1]
    boxes = step("GATHER", add((length, 4), real), draft.read(node.input[0]), zero)
    row = step("GATHER", add((1, length), real), draft.read(node.input[1]), zero)
    scores = step("GATHER", add((length,), real), row, zero)
    best, order, size = add((length,), real), add((length,)), draft.number("k", np.int32(length))
    draft.emit("TOPK_V2", [scores, size], [best, order], "TopKV2Options")
    boxes = step("GATHER", add((length, 4), real), boxes, order)
    above = step("GREATER", add((length,), np.bool_), best, real(least))
    falling = np.arange(length, 0, -1).astype(np.float32)
    ranks = step("SELECT_V2", add((length,), real), above, falling, real(0))
    limit = min(limit, length)
    bounds = [draft.number("bound", value) for value in (np.int32(limit), overlap, real(0))]
    places, count = add((limit,)), add(())
    table = "NonMaxSuppressionV4Options"
    draft.emit("NON_MAX_SUPPRESSION_V4", [boxes, ranks, *bounds], [places, count], table)
    size = step("EXPAND_DIMS", add((1,)), count, zero)
    places = step("SLICE", add((OPEN,)), places, np.zeros(1, np.int32), size)
    index = step("GATHER", add((OPEN,)), order, places)
    column = step("EXPAND_DIMS", add((OPEN, 1)), index, np.int32(1))
    rows = step("PAD", add((OPEN, 3)), column, np.asarray([[0, 0], [2, 0]], np.int32))
    step("CAST", draft.store(node.output[0], onnx_order(2)), rows)


register("NonMaxSuppression", to_tflite=_to_tflite, takes_open=True)
