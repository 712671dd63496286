"""Gemm, which is float on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from npuconv.errors import ModelError
from npuconv.model.proto import attributes_of
from npuconv.ops.operator import register
from npuconv.ops.tape import Gradients, Tape, Visit
from npuconv.tflite.draft import Draft, onnx_order
from npuconv.tflite.flatbuffer import enumerator


def _adjoint(tape: Tape, visit: Visit) -> Gradients:
    attributes = visit.attributes
    if attributes.get("transA", 0):
        return {}
    options = {"transB": 1 - attributes.get("transB", 0), "alpha": attributes.get("alpha", 1.0)}
    return {0: tape.add("Gemm", visit.dy, visit.inputs[1], **options)}


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a FULLY_CONNECTED of constant weights [N, K]."""
    attrs = attributes_of(node)
    weight = draft.constant(node.input[1])
    bias = draft.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    if weight is None or attrs.get("transA", 0) or (len(node.input) > 2 and bias is None):
        raise ModelError("TFLite needs constant weights, and no transA")
    rows = weight if attrs.get("transB", 0) else weight.T
    offsets = np.zeros(len(rows), np.float32) if bias is None else bias
    offsets = np.broadcast_to(offsets.reshape(-1), len(rows)) * np.float32(attrs.get("beta", 1))
    dense(draft, node, rows * np.float32(attrs.get("alpha", 1)), offsets)


def dense(draft: Draft, node: onnx.NodeProto, rows: Any, offsets: Any) -> None:
    """Append a FULLY_CONNECTED of weights [N, K] and offsets [N]."""
    source = draft.read(node.input[0])
    weight = draft.number(node.input[1], np.ascontiguousarray(rows, np.float32))
    bias = draft.number(f"{node.name}/bias", np.ascontiguousarray(offsets, np.float32))
    output = draft.store(node.output[0], onnx_order(len(draft.shape(node.output[0]))))
    none = enumerator("ActivationFunctionType", "NONE")
    options = {"KeepNumDims": True, "FusedActivationFunction": none}
    inputs = [source, weight, bias]
    draft.emit("FULLY_CONNECTED", inputs, [output], "FullyConnectedOptions", **options)


register("Gemm", adjoint=_adjoint, to_tflite=_to_tflite)
