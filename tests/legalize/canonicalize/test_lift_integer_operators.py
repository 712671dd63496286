"""Tests of lift-integer-operators."""

from __future__ import annotations

import numpy as np
import pytest

from support.asserts import context, read, run_pass, same_numbers
from support.builders import Net
from support.quantized_nets import Quantized

NAME = "lift-integer-operators"
X = (1, 4, 8, 8)


def moved(op: str, *inputs: str, **attrs):
    """A model of one operator on integers."""
    net = Quantized(x=X).quantize(0.031, -7)
    constants = [net.constant(np.asarray(values, np.int64)) for values in inputs]
    net.op(op, net.last, *constants, name="node", **attrs)
    return net.dequantize(0.031, -7).model()


def joined(second: float = 0.031):
    """Two tensors of integers, concatenated."""
    net = Quantized(x=X)
    one = net.op("QuantizeLinear", "x", *net.parameters(0.031, -7)).last
    two = net.op("QuantizeLinear", "x", *net.parameters(second, -7)).last
    net.op("Concat", one, two, axis=1, name="node")
    return net.dequantize(0.031, -7).model()


def bounded(op: str, zero: int, *inputs: object, **attrs):
    """A model of one operator on integers, with inputs that are integers of their scale."""
    net = Quantized(opset=18, x=X).quantize(0.031, zero)
    constants = ["" if v is None else net.constant(np.asarray(v)) for v in inputs]
    net.op(op, net.last, *constants, name="node", **attrs)
    return net.dequantize(0.031, zero).model()


def with_indices():
    net = Quantized(x=X).quantize(0.031, -7)
    net.op("MaxPool", outputs=2, kernel_shape=[2, 2], name="node").output(net.last, "t1_1")
    return net.model()


FIRES = [
    lambda: moved("MaxPool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    lambda: moved("Transpose", perm=[0, 2, 3, 1]),
    lambda: moved("Reshape", [1, -1]),
    lambda: moved("Gather", [2, 0], axis=1),
    joined,
    lambda: bounded("Clip", -7, np.int8(-100), np.int8(19)),
    lambda: bounded("Relu", 0),
    lambda: bounded("Pad", -7, np.asarray([0, 0, 1, 2, 0, 0, 0, 1]), np.int8(4)),
    lambda: bounded("Pad", -7, np.asarray([0, 0, 1, 2, 0, 0, 0, 1])),
    lambda: bounded("Resize", -7, None, np.asarray([1, 1, 2, 2], np.float32)),
]
SILENT = [
    lambda: joined(0.02),
    with_indices,
    lambda: bounded("Relu", -7),
    lambda: bounded("Resize", -7, None, np.asarray([1, 1, 2, 2], np.float32), mode="linear"),
    lambda: Net(x=X).op("MaxPool", kernel_shape=[2, 2]).model(),
]


def test_it_changes_places_with_what_quantizes():
    """The same integers, from a float operator."""
    model = read(FIRES[0]())
    assert run_pass(NAME, model) == 1
    assert [n.op for n in model.nodes()] == ["MaxPool", "QuantizeLinear", "DequantizeLinear"]


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (SILENT[0], "its inputs have unlike scales"),
        (SILENT[1], "it returns indices"),
        (SILENT[2], "it compares with the integer 0, which stands for another number"),
        (SILENT[3], "it rounds between integers"),
    ],
)
def test_what_stays_is_named(build, reason):
    """The finding shows the reason."""
    ctx = context()
    assert run_pass(NAME, read(build()), ctx) == 0
    assert [record.reason for record in ctx.refusals] == [reason]


@pytest.mark.parametrize("build", FIRES)
def test_the_integers_are_the_same(build):
    """Before and behind it; a bound stands for the number that it is compared with."""
    proto = build()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    same_numbers(proto, model)
