"""QLinearConv: the integer convolution of the device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import onnx
from numpy.typing import NDArray

from npuconv.arithmetic.device import float_factors
from npuconv.errors import InternalError, ModelError
from npuconv.model.proto import attributes_of
from npuconv.ops.conv import OPTIONS, ORDERS, pad_and_describe
from npuconv.ops.operator import register
from npuconv.ops.relu import bounds
from npuconv.records import dataclass
from npuconv.tflite.draft import CHANNELS_LAST, Draft
from npuconv.tflite.flatbuffer import TensorScales

Array = NDArray[Any]
_RELU6 = np.float32(6)


@dataclass(frozen=True)
class IntegerConv:
    """A QLinearConv with constant parameters."""

    name: str
    source: str  # name of the int8 input
    result: str  # name of the int8 output
    x_scale: Array  # float32, one number
    x_zero: Array
    weight: Array  # [M, C/group, kernel...]
    w_scale: Array  # float32, one number or [M]
    w_zero: Array
    y_scale: Array  # float32, one number
    y_zero: Array
    bias: Array | None  # int32 [M], or None
    attributes: Mapping[str, Any]

    @classmethod
    def read(cls, node: onnx.NodeProto, constant: Callable[[str], Array | None]) -> Self | None:
        """Return the convolution of a node; None if a parameter is not constant."""
        values = [constant(name) for name in node.input[1:8]]
        has_bias = len(node.input) > 8 and bool(node.input[8])
        bias = constant(node.input[8]) if has_bias else None
        if any(value is None for value in values) or (has_bias and bias is None):
            return None
        parameters: list[Any] = [*values, bias, attributes_of(node)]
        return cls(node.name, node.input[0], node.output[0], *parameters)

    @property
    def axes(self) -> int:
        """Number of spatial axes."""
        return self.weight.ndim - 2

    @property
    def strides(self) -> list[int]:
        """Stride of each spatial axis."""
        return list(self.attributes.get("strides", [1] * self.axes))

    @property
    def dilations(self) -> list[int]:
        """Dilation of each spatial axis."""
        return list(self.attributes.get("dilations", [1] * self.axes))

    @property
    def pads(self) -> list[int]:
        """All begins, then all ends, as in ONNX."""
        return list(self.attributes.get("pads", [0] * 2 * self.axes))

    @property
    def group(self) -> int:
        """1, or a divisor of the input channels."""
        return int(self.attributes.get("group", 1))

    @property
    def channels_last(self) -> bool:
        """Whether input and output have their channels last, as in onnxruntime's own form."""
        return bool(self.attributes.get("channels_last", 0))

    @property
    def tensors(self) -> tuple[str, str]:
        """Input and output tensors, without constants."""
        return self.source, self.result

    @property
    def offsets(self) -> NDArray[np.int64]:
        """The bias, or zeros [M]."""
        return (np.zeros(len(self.weight)) if self.bias is None else self.bias).astype(np.int64)

    @property
    def scales(self) -> tuple[Array, Array, Array]:
        """Scales of input, weights [M] and output."""
        return self.x_scale, np.broadcast_to(self.w_scale, len(self.weight)), self.y_scale

    @property
    def factors(self) -> NDArray[np.float32]:
        """Factors of the accumulators, float32 [M]."""
        return float_factors(*self.scales)


def _to_tflite(draft: Draft, node: onnx.NodeProto) -> None:
    """Append a convolution, with the activation behind it if TFLite can fuse it.

    The bias corrects for a stored input whose zero point differs from the zero point of the node,
    such as a tensor that the host quantizes.
    """
    layer = IntegerConv.read(node, draft.constant)
    if layer is None or layer.weight.ndim != 4:
        raise ModelError("TFLite has convolutions of two axes only")
    if layer.w_zero.any():
        raise InternalError(f"{node.name!r}: zero points of weights", where="tflite")
    x_zero, y_zero = int(layer.x_zero), int(layer.y_zero)
    source = draft.read(node.input[0], CHANNELS_LAST)
    stored = draft.quantization(source)
    if stored is None or stored.scale != layer.x_scale.item():
        raise InternalError(f"{node.name!r}: input scale is not that of the tensor", where="tflite")
    if stored.zero != x_zero and any(layer.pads):
        problem = f"{node.name!r}: padded, with a zero point of {stored.zero}"
        raise InternalError(problem, where="tflite")
    result, activation = node.output[0], "NONE"
    consumers = draft.consumers.get(result, [])
    if len(consumers) == 1 and result not in draft.outputs:
        fused = _fusible_activation(draft, consumers[0], layer)
        if fused:
            result, activation = consumers[0].output[0], fused
            draft.fused.add(result)
    source, code, options = pad_and_describe(draft, node, source, layer.weight, activation)
    quantization = TensorScales.from_scale(layer.y_scale.item(), y_zero)
    output = draft.store(result, CHANNELS_LAST, quantization)
    constants = _add_constants(draft, node, layer, stored.zero - x_zero, code)
    draft.emit(code, [source, *constants], [output], OPTIONS[code], **options)


def _add_constants(
    draft: Draft, node: onnx.NodeProto, layer: IntegerConv, moved: int, code: str
) -> tuple[int, int]:
    """Add weights and bias, for a zero point of the input that has moved; return their numbers."""
    count = len(layer.weight)
    sums = layer.weight.astype(np.int64).reshape(count, -1).sum(axis=1)
    bias = layer.offsets + moved * sums
    if np.abs(bias).max(initial=0) >= 2**31:
        raise ModelError("the bias exceeds int32 with the zero point of its input")
    order = ORDERS[code]
    axis = order.index(0)  # axis of the output channels
    values = np.ascontiguousarray(layer.weight.transpose(order))
    zeros = np.zeros(count, np.int64)
    w_scales = np.array(np.broadcast_to(layer.w_scale.reshape(-1).astype(np.float32), count))
    with np.errstate(over="ignore"):
        scales = (layer.x_scale.reshape(()) * w_scales).astype(np.float32)
    by_channel = TensorScales(w_scales, zeros, axis)
    weight = draft.add(node.input[3], values.shape, np.int8, values, by_channel)
    stem = node.input[8] if len(node.input) > 8 and node.input[8] else f"{node.name}/bias"
    sums_scale = TensorScales(scales, zeros)
    number = draft.add(stem, bias.shape, np.int32, bias.astype(np.int32), sums_scale)
    return weight, number


def _fusible_activation(draft: Draft, node: onnx.NodeProto, layer: IntegerConv) -> str:
    zero = int(layer.y_zero)
    if node.op_type == "Relu":
        return "RELU" if zero == 0 else ""  # on int8, Relu cuts off below the integer 0
    if node.op_type != "Clip":
        return ""
    low, high = bounds(draft, node)
    six = zero + np.floor(_RELU6 / np.float32(layer.y_scale.item()) + np.float32(0.5))
    if low <= -128 and high >= 127:
        return "NONE"
    if low == zero and high >= 127:
        return "RELU"
    return "RELU6" if low == zero and high == min(127, six) else ""


register("QLinearConv", to_tflite=_to_tflite)
