"""Conv and ConvTranspose."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from npuconv.errors import ModelError
from npuconv.model.proto import attributes_of
from npuconv.ops.operator import register
from npuconv.ops.tape import Gradients, Tape, Visit, cells_behind
from npuconv.tflite.draft import CHANNELS_LAST, Draft
from npuconv.tflite.flatbuffer import Array, enumerator
from npuconv.tflite.windows import padded, pads_of

OPTIONS = {"CONV_2D": "Conv2DOptions", "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions"}
ORDERS = {"CONV_2D": (0, 2, 3, 1), "DEPTHWISE_CONV_2D": (1, 2, 3, 0)}  # weights: OHWI, 1HWO


def _conv_adjoint(tape: Tape, visit: Visit) -> Gradients:
    window, weight = _window_of(visit), visit.shape(1)
    reach = [(k - 1) * d + 1 for k, d in zip(weight[2:], window["dilations"], strict=True)]
    pads = [e - 1 - p for e, p in zip(reach * 2, window["pads"], strict=True)]
    depthwise = window["group"] == visit.shape()[1] == weight[0] > 1
    if depthwise and weight[2:] == visit.shape()[2:] and not any(window["pads"]):
        kernel = tape.reshape(visit.inputs[1], (1, weight[0], *weight[2:]))
        return {0: tape.add("Mul", visit.dy, kernel)}
    depthwise = depthwise and max(window["strides"]) == 1
    if depthwise and min(pads) >= 0 and (values := tape.value(visit.inputs[1])) is not None:
        flipped = tape.constant(np.flip(values, tuple(range(2, values.ndim))))
        return {0: tape.add("Conv", visit.dy, flipped, **{**window, "pads": pads})}
    window["output_padding"] = cells_behind(visit, window["strides"], reach, window["pads"])
    return {0: tape.add("ConvTranspose", visit.dy, visit.inputs[1], **window)}


def _window_of(visit: Visit) -> dict[str, Any]:
    ones = [1] * (len(visit.shape(1)) - 2)
    default = {"strides": ones, "dilations": ones, "pads": [0, 0] * len(ones), "group": 1}
    return {name: visit.attributes.get(name, value) for name, value in default.items()}


def _transposed_adjoint(tape: Tape, visit: Visit) -> Gradients:
    return {0: tape.add("Conv", visit.dy, visit.inputs[1], **_window_of(visit))}


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a convolution that stays float.

    Raises:
        ModelError: weights that are not constant, or not of two axes.
    """
    weight = draft.constant(node.input[1])
    bias = draft.constant(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    if weight is None or weight.ndim != 4:
        raise ModelError("TFLite has convolutions of two axes only")
    source = draft.read(node.input[0], CHANNELS_LAST)
    source, code, options = pad_and_describe(draft, node, source, weight, "NONE")
    values = np.ascontiguousarray(weight.transpose(ORDERS[code]))
    offsets = np.zeros(len(weight), np.float32) if bias is None else bias
    constants = [draft.number(node.input[1], values), draft.number(f"{node.name}/bias", offsets)]
    output = draft.store(node.output[0], CHANNELS_LAST)
    draft.emit(code, [source, *constants], [output], OPTIONS[code], **options)


def pad_and_describe(
    draft: Draft, node: onnx.NodeProto, source: int, weight: Array, activation: str
) -> tuple[int, str, dict[str, int]]:
    """Return the input, padded if TFLite needs a PAD, the operator and its options."""
    attrs = attributes_of(node)
    strides, dilations = attrs.get("strides", (1, 1)), attrs.get("dilations", (1, 1))
    window = [(k - 1) * d + 1 for k, d in zip(weight.shape[2:], dilations, strict=True)]
    source, padding = padded(draft, source, window, strides, pads_of(attrs))
    options = {
        "Padding": padding,
        "StrideH": int(strides[0]),
        "StrideW": int(strides[1]),
        "FusedActivationFunction": enumerator("ActivationFunctionType", activation),
        "DilationHFactor": int(dilations[0]),
        "DilationWFactor": int(dilations[1]),
    }
    channels, group = draft.shape(node.input[0])[1], int(attrs.get("group", 1))
    if group == channels and group > 1:
        options["DepthMultiplier"] = len(weight) // channels
        return source, "DEPTHWISE_CONV_2D", options
    return source, "CONV_2D", options


register("Conv", adjoint=_conv_adjoint, to_tflite=_to_tflite)
register("ConvTranspose", adjoint=_transposed_adjoint)
