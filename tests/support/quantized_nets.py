"""Quantized models, as exporters write them.

net = Quantized(x=(1, 3, 8, 8)).fake(0.031, -7)
net.qdq_conv((4, 3, 3, 3), scale=0.013).fake(0.057, -128).model()
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from support.builders import Net

Number = float | list[float] | np.ndarray


class Quantized(Net):
    """A graph of QuantizeLinear and DequantizeLinear pairs under construction."""

    def parameters(self, scale: Number, zero: Any, dtype: type = np.int8) -> list[str]:
        """Constants of a scale and a zero point; their names."""
        return [
            self.constant(np.asarray(scale, np.float32)),
            self.constant(np.broadcast_to(np.asarray(zero, dtype), np.shape(scale))),
        ]

    def quantize(self, scale: Number, zero: Any = 0, dtype: type = np.int8, **attrs: Any) -> Net:
        """Append a QuantizeLinear."""
        return self.op("QuantizeLinear", self.last, *self.parameters(scale, zero, dtype), **attrs)

    def dequantize(self, scale: Number, zero: Any = 0, dtype: type = np.int8, **attrs: Any) -> Net:
        """Append a DequantizeLinear."""
        return self.op("DequantizeLinear", self.last, *self.parameters(scale, zero, dtype), **attrs)

    def fake(self, scale: Number, zero: Any = 0, dtype: type = np.int8, **attrs: Any) -> Quantized:
        """Append a pair of conversions, as after quantization-aware training."""
        self.quantize(scale, zero, dtype, **attrs)
        self.dequantize(scale, zero, dtype, **attrs)
        return self

    def integers(self, *shape: int, dtype: type = np.int8, low: int = -127, high: int = 127) -> str:
        """Random integers as an initializer; its name."""
        rng = np.random.default_rng([len(self.initializers), *shape])
        return self.constant(rng.integers(low, high + 1, shape).astype(dtype))

    def qdq_conv(
        self,
        shape: tuple[int, ...],
        scale: Number,
        *,
        zero: Any = 0,
        dtype: type = np.int8,
        ends: tuple[int, int] = (-127, 127),
        **attrs: Any,
    ) -> Quantized:
        """Append a Conv whose weights are integers behind a DequantizeLinear, with a bias."""
        source = self.last
        self.op(
            "DequantizeLinear",
            self.integers(*shape, dtype=dtype, low=ends[0], high=ends[1]),
            *self.parameters(scale, zero, dtype),
            **({"axis": 0} if np.ndim(scale) else {}),
        )
        weight, bias = self.last, self.random(shape[0])
        self.op("Conv", source, weight, bias, **attrs)
        return self


def trained(**attrs: Any) -> onnx.ModelProto:
    """Build an export of quantization-aware training, with scales no calibration would choose.

    Args:
        attrs: attributes of the first convolution.
    """
    net = Quantized(x=(1, 3, 8, 8)).fake(0.0317, -7)
    net.qdq_conv((4, 3, 3, 3), [0.0011, 0.0023, 0.00371, 0.0007], **attrs).fake(0.0173, -128)
    net.qdq_conv((6, 4, 1, 1), 0.00291).fake(0.0291, 11)
    return net.model()


def operators(dtype: type = np.int8, zero: int = -3) -> onnx.ModelProto:
    """A model of QLinearConv, MaxPool on integers and QLinearMatMul.

    Args:
        dtype: element type of the activations.
        zero: zero point of the activations, except the output of the convolution: its lowest
            integer represents 0.
    """
    net = Quantized(x=(1, 3, 8, 8))
    first, low = (
        net.parameters(0.031, zero, dtype),
        net.parameters(0.0173, np.iinfo(dtype).min, dtype),
    )
    last = net.parameters(0.071, zero, dtype)
    net.op("QuantizeLinear", "x", *first)
    weight = [net.integers(4, 3, 3, 3), *net.parameters(0.0021, 0)]
    bias = net.constant(np.asarray([100, -200, 0, 4000], np.int32))
    net.op("QLinearConv", net.last, *first, *weight, *low, bias, name="conv")
    net.op("MaxPool", kernel_shape=[2, 2], strides=[2, 2], name="pool")
    net.op("Flatten", name="flat")
    weight = [net.integers(36, 5), *net.parameters(0.0019, 0)]
    net.op("QLinearMatMul", net.last, *low, *weight, *last, name="product")
    return net.op("DequantizeLinear", net.last, *last).model()


def integer_operators(*, dynamic: bool = False) -> onnx.ModelProto:
    """A ConvInteger with Cast and Mul, of static or dynamic scales.

    Args:
        dynamic: whether DynamicQuantizeLinear finds the scale of the input at each run.
    """
    net = Quantized(x=(1, 3, 8, 8))
    weight = net.integers(4, 3, 3, 3, dtype=np.uint8, low=0, high=255)
    weight_parameters = net.parameters(0.0043, 125, np.uint8)
    if dynamic:
        net.op("DynamicQuantizeLinear", "x", outputs=3)
        values, scale, zero = (net.last + end for end in ("", "_1", "_2"))
    else:
        scale, zero = net.parameters(0.031, 113, np.uint8)
        values = net.op("QuantizeLinear", "x", scale, zero).last
    net.op("ConvInteger", values, weight, zero, weight_parameters[1], name="conv")
    net.nodes.append(helper.make_node("Cast", [net.last], ["cast"], to=TensorProto.FLOAT))
    return _scaled(net, "cast", scale, weight_parameters[0]).op("Relu").model()


def _scaled(net: Net, values: str, *scales: str) -> Net:
    product = net.op("Mul", *scales).last
    return net.op("Mul", values, product, name="factor")
