"""Convolutions followed by an operator with a constant per channel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from support.builders import Net

Build = Callable[[], onnx.ModelProto]
GROUPS = {"op": "ConvTranspose", "group": 2, "strides": [2, 2]}


def convolved(**attrs: object) -> Net:
    """A convolution with four output channels."""
    return Net(x=(1, 4, 8, 8)).conv(weight=(4, 4, 3, 3), **attrs)


def transposed(**attrs: object) -> Net:
    """A transposed convolution with two groups of two output channels."""
    return Net(x=(1, 4, 8, 8)).conv(weight=(4, 2, 3, 3), **GROUPS, **attrs)


def second(net: Net, op: str, values: object) -> Net:
    """The operator with the constant as its second operand."""
    return net.op(op, net.last, net.constant(values), name="it")


def first(net: Net, op: str, values: object) -> Net:
    """The operator with the constant as its first operand."""
    return net.op(op, net.constant(values), net.last, name="it")


def shared(op: str) -> Net:
    """Two convolutions that share their weights; the operator follows only the second."""
    net = Net(x=(1, 4, 8, 8))
    weight = net.random(4, 4, 3, 3)
    net.op("Conv", "x", weight, name="one").output()
    return second(net.op("Conv", "x", weight, name="two"), op, COLUMN).output()


COLUMN = np.arange(1, 5, dtype=np.float32).reshape(4, 1, 1)


def fires(op: str, ordered: str) -> list[Build]:
    """Models whose operator ``op``, or its inverse ``ordered``, is folded into the convolution."""
    return [
        lambda: second(convolved(), op, COLUMN).model(),
        lambda: first(convolved(bias=False), op, COLUMN[None]).model(),
        lambda: second(convolved(), ordered, COLUMN).model(),
        lambda: second(convolved(), op, 2.0).model(),
        lambda: second(convolved(bias=False), ordered, [3.0]).model(),
        lambda: second(transposed(), op, COLUMN).model(),
        lambda: second(transposed(bias=False, output_shape=[17, 17]), op, COLUMN).model(),
        lambda: shared(op).model(),
        lambda: second(Net(x=("N", 4, "L")).conv(weight=(4, 4, 2)), op, COLUMN[..., 0]).model(),
    ]


def silent(op: str, ordered: str) -> list[Build]:
    """Models whose operator cannot be folded into a convolution."""
    return [
        lambda: first(convolved(), ordered, COLUMN).model(),
        lambda: second(convolved(), op, COLUMN.reshape(4)[:1].repeat(6)).model(),
        lambda: second(Net(x=(1, 4, 8, 8)).op("Relu"), op, COLUMN).model(),
        lambda: second(convolved().output(), op, COLUMN).output().model(),
    ]
