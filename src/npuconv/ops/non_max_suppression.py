"""NonMaxSuppression: the boxes that no better box covers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from npuconv.errors import ModelError
from npuconv.model.proto import attributes_of
from npuconv.ops.operator import Operator, register
from npuconv.tflite.draft import Draft, onnx_order
from npuconv.tflite.flatbuffer import OPEN


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a NON_MAX_SUPPRESSION_V4 of one class, whose result is cut to its length.

    Ranks take the place of scores: TOPK_V2 puts the lower of equal ones first, as ONNX does.
    Zeros before the indices are the numbers of image and class.
    """
    names, (*classes, length) = [*node.input, "", "", ""][2:5], draft.shape(node.input[1])
    pairs = zip(names, (0, 0.0, -np.inf), strict=True)
    limits = [draft.constant(n) if n else np.asarray(default) for n, default in pairs]
    if classes != [1, 1] or attributes_of(node).get("center_point_box", 0):
        raise ModelError("TFLite suppresses boxes of one image and class, given by corners")
    limit, overlap, least = (0 if value is None else value.item() for value in limits)
    overlap = np.nextafter(np.float32(overlap), np.float32(2))  # TFLite suppresses at the limit
    if any(value is None for value in limits) or limit < 1 or overlap > 1:
        raise ModelError("TFLite needs constant limits: at least 1 box, an overlap below 1")

    def add(shape: tuple[int, ...], dtype: Any = np.int32) -> int:
        return draft.add(f"{node.output[0]}/part", shape, dtype)

    def step(code: str, result: int, *inputs: Any) -> int:
        numbers = [k if isinstance(k, int) else draft.number(code, k) for k in inputs]
        draft.emit(code, numbers, [result], f"{code.title().replace('_', '')}Options")
        return result

    real, zero = np.float32, np.int32(0)
    boxes = step("GATHER", add((length, 4), real), draft.read(node.input[0]), zero)
    scores = step("GATHER", add((1, length), real), draft.read(node.input[1]), zero)
    scores = step("GATHER", add((length,), real), scores, zero)
    best, order, size = add((length,), real), add((length,)), draft.number("k", np.int32(length))
    draft.emit("TOPK_V2", [scores, size], [best, order], "TopKV2Options")
    boxes = step("GATHER", add((length, 4), real), boxes, order)
    above = step("GREATER", add((length,), np.bool_), best, real(least))
    falling = np.arange(length, 0, -1).astype(np.float32)
    ranks = step("SELECT_V2", add((length,), real), above, falling, real(0))
    limit = min(limit, length)
    bounds = [draft.number("bound", value) for value in (np.int32(limit), overlap, real(0))]
    chosen, count = add((limit,)), add(())
    table = "NonMaxSuppressionV4Options"
    draft.emit("NON_MAX_SUPPRESSION_V4", [boxes, ranks, *bounds], [chosen, count], table)
    count = step("EXPAND_DIMS", add((1,)), count, zero)
    chosen = step("SLICE", add((OPEN,)), chosen, np.zeros(1, np.int32), count)
    chosen = step("GATHER", add((OPEN,)), order, chosen)
    column = step("EXPAND_DIMS", add((OPEN, 1)), chosen, np.int32(1))
    rows = step("PAD", add((OPEN, 3)), column, np.asarray([[0, 0], [2, 0]], np.int32))
    step("CAST", draft.store(node.output[0], onnx_order(2)), rows)


register(Operator(name="NonMaxSuppression", to_tflite=_to_tflite, takes_open=True))
