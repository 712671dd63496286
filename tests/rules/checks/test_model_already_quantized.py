"""Tests of model-already-quantized."""

from __future__ import annotations

import numpy as np

from support.asserts import finding
from support.builders import Net, integer_conv

CODE = "MDL001"
X = (1, 3, 8, 8)


def quantized(domain: str = "", then: str = "MatMulInteger"):
    net = Net(x=X)
    scale, zero = net.constant(np.float32(1)), net.constant(np.int8(0))
    net.op("QuantizeLinear", "x", scale, zero, name="q", domain=domain)
    return (net.op(then, net.last, net.last) if then else net).model()


def contrib():
    net = Net(x=X)
    scale, zero = net.constant(np.float32(1)), net.constant(np.int8(0))
    return net.op("QLinearSigmoid", "x", scale, zero, scale, zero, domain="com.microsoft").model()


def unpacked():
    net = Net(x=X)
    weight = net.constant(np.ones((4, 3, 3, 3), np.int8))
    net.op("DequantizeLinear", weight, net.constant(np.float32(1)))
    return net.op("Conv", "x", net.last).model()


FIRES = [
    lambda: integer_conv(np.ones((4, 3, 3, 3), np.int8)),
    quantized,
    lambda: quantized("com.microsoft"),
    contrib,
    lambda: Net(x=X).branch(Net(prefix="a").op("MatMulInteger", "x", "x"), inner()).model(),
]
SILENT = [
    unpacked,
    lambda: Net(x=X).conv("x").model(),
    lambda: quantized("org.example", then=""),
    lambda: quantized(then=""),  # an output of integers
]


def inner() -> Net:
    return Net(prefix="b").op("Relu", "x")


def test_it_counts_the_operators():
    """Operators are counted by name; the node is the first of them."""
    found = finding(integer_conv(np.ones((4, 3, 3, 3), np.int8)), CODE)
    assert found.message == (
        "the model is quantized already: it has 1 QLinearConv, 1 QuantizeLinear"
    )
    assert found.value == "1 QLinearConv, 1 QuantizeLinear"
    assert (found.op_type, found.limit) == ("QuantizeLinear", "a float model")


def test_one_finding_however_many_operators():
    """The finding is about the model."""
    net = Net(x=X)
    scale, zero = net.constant(np.float32(1)), net.constant(np.int8(0))
    for _ in range(3):
        net.op("QuantizeLinear", "x", scale, zero)
    assert finding(net.op("MatMulInteger", net.last, net.last).model(), CODE).value == (
        "1 MatMulInteger, 3 QuantizeLinear"
    )


def test_operators_of_onnxruntime_count():
    """Its 16-bit models use QuantizeLinear of its own domain."""
    assert finding(quantized("com.microsoft"), CODE).op_type == "com.microsoft.QuantizeLinear"
