"""Models that are quantized already, with scales and zero points that mean nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx

from hostile.case import Case, Cases, Write, model
from support.quantized_nets import Quantized, integer_operators, operators, trained

_SCALES: dict[str, Any] = {
    "zero": 0.0,
    "negative": -0.1,
    "nan": np.nan,
    "inf": np.inf,
    "denormal": np.float32(1e-45),
    "tiny": 1e-37,
    "huge": 3e38,
    "several": [0.1, 0.2],
    "none": [],
}
_ZEROS: dict[str, Any] = {
    "other-type": np.asarray(3, np.uint8),
    "float": np.asarray(3, np.float32),
    "int32": np.asarray(10**9, np.int32),
    "several": np.asarray([1, 2, 3], np.int8),
    "empty": np.asarray([], np.int8),
}
# Starts, stops, axes and steps of what the second part reads; attributes of both.
_SUMS: dict[str, tuple[list[list[int]], dict[str, Any]]] = {
    "step-zero": ([[2], [4], [1], [0]], {}),
    "step-back": ([[3], [1], [1], [-1]], {}),
    "step-huge": ([[2], [4], [1], [2**62]], {}),
    "axis-outside": ([[2], [4], [9], [1]], {}),
    "axis-twice": ([[2, 2], [4, 4], [1, 1], [1, 1]], {}),
    "lengths": ([[2, 2], [4], [1], [1]], {}),
    "stride-zero": ([[2], [4], [1], [1]], {"strides": [0, 0]}),
    "strides-one": ([[2], [4], [1], [1]], {"strides": [1]}),
    "dilation-huge": ([[2], [4], [1], [1]], {"dilations": [2**40, 1]}),
    "pads-negative": ([[2], [4], [1], [1]], {"pads": [-1, -1, -1, -1]}),
    "group": ([[2], [4], [1], [1]], {"group": 2}),
    "far-apart": ([[0, 7], [4, 8], [1, 3], [1, 1]], {}),
}


def cases() -> Cases:
    """Every odd scale and zero point, on activations and on weights."""
    for name, value in _SCALES.items():
        yield _case(f"scale-{name}", _with(scale=np.asarray(value, np.float32)))
        yield _case(f"weight-scale-{name}", _weights(np.asarray(value, np.float32)))
    for name, zero in _ZEROS.items():
        yield _case(f"zero-{name}", _with(zero=zero))
    for axis in (-9, 4, 7, 2**40):
        yield _case(f"axis-{axis}", _weights(np.full(4, 0.1, np.float32), axis=axis))
    yield _case("no-zero-point", _without_zero())
    yield _case("bias-other-scale", _bias())
    yield _case("trained-odd", trained())
    yield _case("inputs-missing", _cut(operators(), "QLinearConv", 4))
    yield _case("product-inputs-missing", _cut(operators(), "QLinearMatMul", 1))
    yield _case("integer-inputs-missing", _cut(integer_operators(), "ConvInteger", 1))
    yield _case("pair-inputs-missing", _cut(trained(), "DequantizeLinear", 1))
    for name, (bounds, attrs) in _SUMS.items():
        write = model(_sum(bounds, **attrs))
        samples = {"calibration": "samples.npy"}
        yield Case(f"quantized/sum-{name}", "parts of a convolution", _with_samples(write),
                   options=samples, commands=("check", "verify"))  # fmt: skip


def _case(name: str, proto: onnx.ModelProto) -> Case:
    return Case(f"quantized/{name}", "scales of the source", model(proto))


def _with_samples(write: Write) -> Write:
    """The model, and a sample of its input."""

    def both(folder: Path) -> None:
        write(folder)
        np.save(folder / "samples.npy", np.ones((1, 4, 8, 8), np.float32))

    return both


def _sum(bounds: list[list[int]], **attrs: Any) -> onnx.ModelProto:
    """A convolution in two parts, added in int32, as ``convert`` writes it."""
    net = Quantized(x=(1, 4, 8, 8)).quantize(0.03)
    source, zero = net.last, net.constant(np.int8(0))
    first = [[0], [2], [1], [1]]
    totals = []
    for cut in (first, bounds):
        lists = [net.constant(np.asarray(values, np.int64)) for values in cut]
        read = net.op("Slice", source, *lists).last
        totals.append(net.op("ConvInteger", read, net.integers(3, 2, 1, 1), zero, **attrs).last)
    net.op("Cast", net.op("Add", *totals).last)
    net.nodes[-1].attribute.append(onnx.helper.make_attribute("to", onnx.TensorProto.FLOAT))
    net.op("Mul", net.last, net.constant(np.full((3, 1, 1), 0.01, np.float32)))
    return net.quantize(1.0).dequantize(0.1).model()


def _with(scale: Any = 0.1, zero: Any = None) -> onnx.ModelProto:
    """A pair before a convolution, with this scale and zero point on both sides."""
    net = Quantized(x=(1, 3, 8, 8))
    point = net.constant(np.asarray(0, np.int8) if zero is None else zero)
    names = [net.constant(np.asarray(scale, np.float32)), point]
    net.op("QuantizeLinear", "x", *names)
    net.op("DequantizeLinear", net.last, *names)
    return net.conv(net.last).model()


def _weights(scale: Any, **attrs: Any) -> onnx.ModelProto:
    net = Quantized(x=(1, 3, 8, 8)).fake(0.03)
    source, weight = net.last, net.integers(4, 3, 3, 3)
    net.op("DequantizeLinear", weight, net.constant(scale), **attrs)
    return net.op("Conv", source, net.last).fake(0.1).model()  # type: ignore[attr-defined]


def _without_zero() -> onnx.ModelProto:
    net = Quantized(x=(1, 3, 8, 8))
    scale = net.constant(np.float32(0.1))
    net.op("QuantizeLinear", "x", scale)
    return net.op("DequantizeLinear", net.last, scale).conv(net.last).model()


def _bias() -> onnx.ModelProto:
    """A bias whose scale is not the product of those of input and weights."""
    net = Quantized(x=(1, 3, 8, 8)).fake(0.03)
    source = net.last
    bias = net.constant(np.asarray([2**31 - 1, -(2**31), 1, 0], np.int32))
    net.op("DequantizeLinear", bias, net.constant(np.float32(1e-3)))
    offsets = net.last
    net.op("DequantizeLinear", net.integers(4, 3, 3, 3), net.constant(np.float32(1e-6)))
    return net.op("Conv", source, net.last, offsets).fake(0.1).model()  # type: ignore[attr-defined]


def _cut(proto: onnx.ModelProto, op: str, count: int) -> onnx.ModelProto:
    """The model with only so many inputs of the first operator of a kind."""
    node = next(node for node in proto.graph.node if node.op_type == op)
    del node.input[count:]
    return proto
