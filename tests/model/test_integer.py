"""Integer and fused operators seen as the float operators whose work they do."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv import partition as plan
from npuconv.model.conv import window
from npuconv.model.nhwc import as_float
from support.asserts import read
from support.builders import Net, integer_conv


def node_of(net, op):
    return next(n for n in read(net.model()).nodes() if n.op == op)


def quantized(net, op, source, weight, **attrs):
    """Append an operator that takes scale and zero point behind each operand."""
    scale, zero = net.constant(np.float32(0.1)), net.constant(np.int8(0))
    values = net.constant(np.ones(weight, np.int8))
    return net.op(op, source, scale, zero, values, scale, zero, scale, zero, **attrs)


def test_qlinear_conv():
    """A convolution with its weight at input 3, and as many multiplications."""
    model = read(integer_conv(np.ones((6, 2, 3, 3), np.int8), group=2, strides=[2, 2]))
    (node,) = model.nodes("QLinearConv")
    view = as_float(node)
    assert (view.op, window(view).mode, window(view).weight) == ("Conv", "grouped", (6, 2, 3, 3))
    assert plan.macs(view) == 6 * 2 * 9 * 9
    assert plan.macs(node) == 0


def integers():
    """A graph whose tensor ``q`` is int8 [2, 5]."""
    net = Net(x=(2, 5))
    scale, zero = net.constant(np.float32(0.1)), net.constant(np.int8(0))
    return net.op("QuantizeLinear", "x", scale, zero, to="q")


def product(net, op):
    return plan.macs(as_float(node_of(net, op)))


def test_matrix_products():
    """They multiply like those of float models."""
    net = quantized(integers(), "QLinearMatMul", "q", (5, 7))
    assert product(net, "QLinearMatMul") == 70
    net = integers()
    net.op("MatMulInteger", "q", net.constant(np.ones((5, 7), np.int8)))
    assert product(net, "MatMulInteger") == 70
    net = quantized(integers(), "QGemm", "q", (7, 5), domain="com.microsoft", transB=1)
    node = node_of(net, "QGemm")
    node.outputs[0].shape = [2, 7]
    assert plan.macs(as_float(node)) == 70


@pytest.mark.parametrize(
    ("op", "domain", "attrs"),
    [
        ("QLinearConv", "com.microsoft", {"channels_last": 1}),
        ("NhwcFusedConv", "com.microsoft", {}),
        ("Conv", "com.ms.internal.nhwc", {}),
    ],
)
def test_channels_last(op, domain, attrs):
    """The view has the channels first, so the extents are those of the picture."""
    net = Net(x=(1, 8, 6, 4))
    if op == "QLinearConv":
        quantized(net, op, "x", (2, 4, 3, 3), domain=domain, **attrs)
    else:
        net.op(op, "x", net.random(2, 4, 3, 3), domain=domain, **attrs)
    node = node_of(net, op)
    node.outputs[0].shape = [1, 6, 4, 2]
    win = window(as_float(node))
    assert (win.input, win.output) == ((1, 4, 8, 6), (1, 2, 6, 4))
    assert win.macs == 2 * 4 * 9 * 24


def test_channels_first_of_a_foreign_domain():
    """Without channels_last the tensors stay as they are."""
    net = quantized(Net(x=(1, 4, 8, 8)), "QLinearConv", "x", (2, 4, 3, 3), domain="com.microsoft")
    node = node_of(net, "QLinearConv")
    assert as_float(node).inputs[0] is node.inputs[0]


def test_unknown_rank():
    """Nothing can be put first where the rank is not known."""
    net = Net(x=(1, 8, 6, 4)).op("Thing", domain="com.example")
    net.op("Conv", "t0", net.random(2, 4, 3, 3), domain="com.ms.internal.nhwc")
    assert window(as_float(node_of(net, "Conv"))).input is None


@pytest.mark.parametrize(
    "net",
    [
        Net(x=(1, 4, 8, 8)).conv("x", (2, 4, 3, 3)),
        Net(x=(1, 4, 8, 8)).op("Relu"),
        Net(x=(1, 4, 8, 8)).op("QLinearConv", domain="com.example"),
        Net(x=(1, 4, 8, 8)).op("FusedConv", domain="com.microsoft"),
    ],
)
def test_other_nodes_stay_what_they_are(net):
    """Float operators, foreign ones, and those that lack the weight they should have."""
    node = read(net.model()).nodes()[0] if net.domains else node_of(net, net.nodes[0].op_type)
    assert as_float(node) is node
