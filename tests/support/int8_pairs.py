"""A float model and integer models of the same function, written by hand."""

from __future__ import annotations

import numpy as np
import onnx

from npuconv.arithmetic.encoding import Encoding, quantize_weights
from npuconv.arithmetic.layer import encode_layer
from support.builders import Net, images

SHAPE = (1, 3, 6, 6)
X_STEP, Y_STEP = np.float32(1 / 127), np.float32(0.04)


def weights() -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of the one convolution."""
    rng = np.random.default_rng(5)
    return rng.uniform(-0.5, 0.5, (4, 3, 3, 3)).astype(np.float32), np.zeros(4, np.float32)


def float_model(batch: int | str = 1) -> onnx.ModelProto:
    """conv, Relu, and an output that has a class for every channel."""
    weight, bias = weights()
    net = Net(x=(batch, *SHAPE[1:]))
    net.op("Conv", "x", net.constant(weight), net.constant(bias), pads=[1] * 4, name="conv", to="c")
    return net.op("Relu", name="relu", to="r").op("GlobalAveragePool", to="y").output("y").model()


def integer_model(ending: str = "/int8", batch: int | str = 1) -> onnx.ModelProto:
    """The same with a QLinearConv."""
    layer = encode_layer(*weights(), Encoding.plain(X_STEP), Encoding.plain(Y_STEP))
    net = Net(x=(batch, *SHAPE[1:]))
    x, y, zero = net.constant(X_STEP), net.constant(Y_STEP), net.constant(np.int8(0))
    parts = [net.constant(layer.weight), net.constant(layer.weight_scales)]
    parts += [net.constant(np.zeros(4, np.int8)), y, zero, net.constant(layer.bias)]
    net.op("QuantizeLinear", "x", x, zero, to=f"x{ending}")
    net.op("QLinearConv", f"x{ending}", x, zero, *parts, pads=[1] * 4, name="conv", to=f"c{ending}")
    net.op("Relu", name="relu", to=f"r{ending}")
    net.op("DequantizeLinear", f"r{ending}", y, zero, to="r/real")
    return net.op("GlobalAveragePool", to="y").output("y").model()


def explicit_model() -> onnx.ModelProto:
    """The same with explicit conversions, the Relu in the saturation of an output of uint8."""
    weight, bias = weights()
    stored, scales = quantize_weights(weight)
    net = Net(x=SHAPE)
    x, zero = net.constant(X_STEP), net.constant(np.int8(0))
    y, least = net.constant(Y_STEP), net.constant(np.uint8(0))
    net.op("QuantizeLinear", "x", x, zero).op("DequantizeLinear", net.last, x, zero, to="xd")
    net.op("DequantizeLinear", net.constant(stored), net.constant(scales), axis=0, to="w")
    net.op("Conv", "xd", "w", net.constant(bias), pads=[1] * 4, name="conv", to="c")
    net.op("QuantizeLinear", "c", y, least, to="c_QuantizeLinear_Output")
    net.op("DequantizeLinear", net.last, y, least, to="r/real")
    return net.op("GlobalAveragePool", to="y").output("y").model()


def samples(count: int = 4) -> np.ndarray:
    """Inputs, all different."""
    return images(count, *SHAPE[1:])
