"""Conv, ConvTranspose and QLinearConv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from npuconv.errors import InternalError, ModelError
from npuconv.model.proto import attributes_of
from npuconv.ops.operator import Operator, register
from npuconv.ops.relu import bounds
from npuconv.ops.tape import Gradients, Tape, Visit, cells_behind
from npuconv.tflite.draft import CHANNELS_LAST, Draft
from npuconv.tflite.flatbuffer import Array, Quantization, enumerator
from npuconv.tflite.windows import padded, pads_of

_RELU6 = np.float32(6)
_OPTIONS = {"CONV_2D": "Conv2DOptions", "DEPTHWISE_CONV_2D": "DepthwiseConv2DOptions"}
_ORDERS = {"CONV_2D": (0, 2, 3, 1), "DEPTHWISE_CONV_2D": (1, 2, 3, 0)}  # of weights: OHWI, 1HWO


def _conv_adjoint(tape: Tape, at: Visit) -> Gradients:
    attributes, weight = _window_of(at), at.shape(1)
    reach = [(k - 1) * d + 1 for k, d in zip(weight[2:], attributes["dilations"], strict=True)]
    pads = [e - 1 - p for e, p in zip(reach * 2, attributes["pads"], strict=True)]
    depthwise = (
        attributes["group"] == at.shape()[1] == weight[0] > 1 and max(attributes["strides"]) == 1
    )
    if depthwise and min(pads) >= 0 and (values := tape.value(at.inputs[1])) is not None:
        flipped = tape.constant(np.flip(values, tuple(range(2, values.ndim))))
        return {0: tape.add("Conv", at.dy, flipped, **{**attributes, "pads": pads})}
    padding = cells_behind(at, attributes["strides"], reach, attributes["pads"])
    return {0: tape.add("ConvTranspose", at.dy, at.inputs[1], output_padding=padding, **attributes)}


def _window_of(at: Visit) -> dict[str, Any]:
    ones = [1] * (len(at.shape(1)) - 2)
    default = {"strides": ones, "dilations": ones, "pads": [0, 0] * len(ones), "group": 1}
    return {name: at.attributes.get(name, value) for name, value in default.items()}


def _transposed_adjoint(tape: Tape, at: Visit) -> Gradients:
    return {0: tape.add("Conv", at.dy, at.inputs[1], **_window_of(at))}


@dataclass(frozen=True)
class _QuantizedLayer:
    """A QLinearConv, its constants read; zero points are int."""

    weight: Array
    bias: Array
    x_scale: np.float32
    x_zero: int
    w_scales: Array
    y_scale: np.float32
    y_zero: int


def _quantized_to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a convolution, with the activation behind it if TFLite can fuse it.

    The bias makes up for a zero point of the stored input that is not that of the node: a tensor
    that the host quantizes has its own.
    """
    layer, attrs = _read(draft, node), attributes_of(node)
    source = draft.read(node.input[0], CHANNELS_LAST)
    stored = draft.quantization(source)
    if stored is None or stored.scale != layer.x_scale:
        raise InternalError(f"{node.name!r}: input scale is not that of the tensor", where="tflite")
    if stored.zero != layer.x_zero and any(pads_of(attrs)):
        problem = f"{node.name!r}: padded, with a zero point of {stored.zero}"
        raise InternalError(problem, where="tflite")
    result, activation = node.output[0], "NONE"
    consumers = draft.consumers.get(result, [])
    if len(consumers) == 1 and result not in draft.outputs:
        fused = _fusible_activation(draft, consumers[0], layer)
        if fused:
            result, activation = consumers[0].output[0], fused
            draft.fused.add(result)
    source, code, options = _pad_and_describe(draft, node, source, layer.weight, activation)
    output = draft.store(result, CHANNELS_LAST, Quantization.of(layer.y_scale, layer.y_zero))
    constants = _add_constants(draft, node, layer, stored.zero - layer.x_zero, code)
    draft.emit(code, [source, *constants], [output], _OPTIONS[code], **options)


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
    source, code, options = _pad_and_describe(draft, node, source, weight, "NONE")
    values = np.ascontiguousarray(weight.transpose(_ORDERS[code]))
    offsets = np.zeros(len(weight), np.float32) if bias is None else bias
    constants = [draft.number(node.input[1], values), draft.number(f"{node.name}/bias", offsets)]
    output = draft.store(node.output[0], CHANNELS_LAST)
    draft.emit(code, [source, *constants], [output], _OPTIONS[code], **options)


def _pad_and_describe(
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


def _read(draft: Draft, node: onnx.NodeProto) -> _QuantizedLayer:
    """Read the constants of a layer.

    Raises:
        ModelError: no convolution of two axes.
    """
    values: list[Any] = [draft.constant(name) for name in node.input[1:]]
    x_scale, x_zero, weight, w_scale, w_zero, y_scale, y_zero = values[:7]
    if weight is None or weight.ndim != 4:
        raise ModelError("TFLite has convolutions of two axes only")
    if np.asarray(w_zero).any():
        raise InternalError(f"{node.name!r}: zero points of weights", where="tflite")
    rows = len(weight)
    bias = values[7] if len(values) > 7 and values[7] is not None else np.zeros(rows, np.int32)
    scales = np.array(np.broadcast_to(np.asarray(w_scale, np.float32).reshape(-1), rows))
    x = np.float32(x_scale.item()), int(x_zero.item())
    return _QuantizedLayer(weight, bias, *x, scales, np.float32(y_scale.item()), int(y_zero.item()))


def _add_constants(
    draft: Draft, node: onnx.NodeProto, layer: _QuantizedLayer, moved: int, code: str
) -> tuple[int, int]:
    """Add weights and bias, for a zero point of the input that has moved; return their numbers."""
    count = len(layer.weight)
    sums = layer.weight.astype(np.int64).reshape(count, -1).sum(axis=1)
    bias = layer.bias.astype(np.int64) + moved * sums
    if np.abs(bias).max(initial=0) >= 2**31:
        raise ModelError("the bias exceeds int32 with the zero point of its input")
    order = _ORDERS[code]
    axis = order.index(0)  # of the output channels
    values = np.ascontiguousarray(layer.weight.transpose(order))
    zeros = np.zeros(count, np.int64)
    with np.errstate(over="ignore"):
        scales = (layer.x_scale * layer.w_scales).astype(np.float32)
    weight = draft.add(
        node.input[3], values.shape, np.int8, values, Quantization(layer.w_scales, zeros, axis)
    )
    stem = node.input[8] if len(node.input) > 8 and node.input[8] else f"{node.name}/bias"
    number = draft.add(
        stem, bias.shape, np.int32, bias.astype(np.int32), Quantization(scales, zeros)
    )
    return weight, number


def _fusible_activation(draft: Draft, node: onnx.NodeProto, layer: _QuantizedLayer) -> str:
    if node.op_type == "Relu":
        return "RELU" if layer.y_zero == 0 else ""  # on int8, Relu cuts off below the integer 0
    if node.op_type != "Clip":
        return ""
    low, high = bounds(draft, node)
    six = layer.y_zero + np.floor(_RELU6 / layer.y_scale + np.float32(0.5))
    if low <= -128 and high >= 127:
        return "NONE"
    if low == layer.y_zero and high >= 127:
        return "RELU"
    return "RELU6" if low == layer.y_zero and high == min(127, six) else ""


register(
    Operator(name="Conv", adjoint=_conv_adjoint, to_tflite=_to_tflite),
    Operator(name="ConvTranspose", adjoint=_transposed_adjoint),
    Operator(name="QLinearConv", to_tflite=_quantized_to_tflite),
)
