"""Small models of many kinds, on which every pass and rule must work."""

from __future__ import annotations

import onnx

from support.builders import Net, digits

X = (1, 4, 10, 10)


def _old() -> onnx.ModelProto:
    net = Net(opset=7, ir_version=4, x=X)
    net.conv("x", (4, 4, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2]).batchnorm(4).op("Relu")
    return net.op("Pad", pads=[0, 0, 1, 1, 0, 0, 1, 1]).op("Dropout").model()


def _pools() -> onnx.ModelProto:
    net = Net(opset=11, x=X).op("MaxPool", kernel_shape=[3, 3], auto_pad="SAME_LOWER")
    net.op("AveragePool", kernel_shape=[2, 2], strides=[2, 2], auto_pad="VALID")
    return net.op("LpPool", kernel_shape=[2, 2]).op("GlobalAveragePool").model()


def _padded() -> onnx.ModelProto:
    net = Net(opset=13, x=X).pad([0, 0, 1, 2, 0, 0, 2, 1]).conv("", (4, 4, 3, 3))
    return net.pad([0] * 8).pad([0, 0, 1, 1, 0, 0, 1, 1], mode="reflect").op("Relu").model()


def _scaled() -> onnx.ModelProto:
    net = Net(x=X).conv("x", (4, 4, 3, 3), bias=False)
    net.op("Mul", net.last, net.random(4, 1, 1)).op("Add", net.last, net.random(1, 4, 1, 1))
    return net.batchnorm(4).op("Identity").op("Clip").model()


def _transposed() -> onnx.ModelProto:
    net = Net(x=X).conv("x", (4, 2, 3, 3), op="ConvTranspose", strides=[2, 2], group=2)
    return net.batchnorm(4).conv("", (4, 3, 2, 2), op="ConvTranspose", auto_pad="VALID").model()


def _one_axis() -> onnx.ModelProto:
    net = Net(x=(2, 4, 12)).conv("x", (6, 4, 3), auto_pad="SAME_LOWER", strides=[2]).op("Relu")
    return net.op("MaxPool", kernel_shape=[2]).pad([0, 0, 1, 0, 0, 1]).conv("", (2, 6, 3)).model()


def _three_axes() -> onnx.ModelProto:
    net = Net(x=(1, 2, 5, 6, 7)).conv("x", (4, 2, 3, 3, 3), auto_pad="SAME_UPPER").batchnorm(4)
    return net.op("AveragePool", kernel_shape=[2, 2, 2]).model()


def _grouped() -> onnx.ModelProto:
    net = Net(opset=21, ir_version=10, x=X).conv("x", (8, 2, 3, 3), group=2, pads=[1, 1, 1, 1])
    net.batchnorm(8).op("Relu").conv("", (8, 1, 3, 3), group=8, auto_pad="SAME_UPPER")
    return net.conv("", (4, 8, 1, 1)).model()


def _dilated() -> onnx.ModelProto:
    # Symbolic extents are 2 where a model is run, so every kernel must fit into that.
    net = Net(x=("N", 4, "H", "W"))
    net.conv("x", (4, 4, 3, 3), dilations=[2, 2], pads=[2, 2, 2, 2])
    net.conv("", (4, 4, 3, 3), auto_pad="SAME_UPPER")
    return net.conv("", (2, 4, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2]).model()


def _branches() -> onnx.ModelProto:
    net = Net(x=X).conv("x", (4, 4, 3, 3), auto_pad="SAME_UPPER", to="y")
    then = Net(prefix="a").op("Identity", "y").conv("", (4, 4, 3, 3), auto_pad="SAME_UPPER")
    return net.branch(then, Net(prefix="b").op("Relu", "y").batchnorm(4)).op("Neg").model()


def _outputs() -> onnx.ModelProto:
    net = Net(x=X, z=X).conv("x", (4, 4, 3, 3), to="first").batchnorm(4).op("Relu", to="second")
    net.op("Add", "x", "z").conv("", (4, 4, 1, 1), to="third")
    return net.output("first", "second", "third").model()


def _constants() -> onnx.ModelProto:
    net = Net(x=(1, 2, 4, 4))
    weight = net.op("Mul", net.random(3, 2, 1, 1), net.constant(2.0)).last
    net.op("Conv", "x", weight, name="").op("Flatten", name="").reshape([1, 48]).reshape([1, 48])
    return net.op("Gemm", net.last, net.random(48, 5)).op("Softmax").model()


ZOO = {
    "digits": digits,
    "old": _old,
    "pools": _pools,
    "padded": _padded,
    "scaled": _scaled,
    "transposed": _transposed,
    "one-axis": _one_axis,
    "three-axes": _three_axes,
    "grouped": _grouped,
    "dilated": _dilated,
    "branches": _branches,
    "outputs": _outputs,
    "constants": _constants,
}
