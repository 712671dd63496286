"""ArgMax and ArgMin: the index of the first largest or smallest value along an axis."""

from __future__ import annotations

import numpy as np
import onnx

from npuconv.errors import ModelError
from npuconv.model.proto import attributes_of
from npuconv.ops.operator import Operator, register
from npuconv.tflite.draft import Draft, onnx_order
from npuconv.tflite.flatbuffer import enumerator

_CODES = {"ArgMax": "ARG_MAX", "ArgMin": "ARG_MIN"}


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append an ARG_MAX or ARG_MIN, and a RESHAPE if the axis stays.

    Raises:
        ModelError: the last of equal values is asked for.
    """
    attrs, result, rank = attributes_of(node), node.output[0], len(draft.shape(node.input[0]))
    if attrs.get("select_last_index", 0):
        raise ModelError(f"TFLite has no {node.op_type} with select_last_index")
    axis, code = int(attrs.get("axis", 0)) % rank, _CODES[node.op_type]
    order = draft.order([node.input[0]], rank)
    remaining = [k for k in order if k != axis]
    keeps_axis = bool(attrs.get("keepdims", 1))
    if not keeps_axis and remaining != sorted(remaining):
        order, remaining = onnx_order(rank), [k for k in range(rank) if k != axis]
    source = draft.read(node.input[0], order)
    output = draft.store(result, order if keeps_axis else onnx_order(rank - 1))
    index = output
    if keeps_axis:
        extents = draft.shape(node.input[0])
        index = draft.add(f"{result}/flat", [extents[k] for k in remaining], np.int64)
    place = draft.number("axis", np.asarray(order.index(axis), np.int32))
    kind = enumerator("TensorType", "INT64")
    draft.emit(code, [source, place], [index], f"{node.op_type}Options", OutputType=kind)
    if keeps_axis:
        draft.reshape(index, output)


for name in _CODES:
    register(Operator(name=name, to_tflite=_to_tflite))
