"""Tests of accumulator-overflow."""

from __future__ import annotations

import numpy as np
from onnx import helper

from support.asserts import finding, findings
from support.builders import Net, integer_conv
from support.target_files import chip

CODE = "QNT002"
CHIP = chip(weight_abs_sum_max={"max": 30, "source": "", "why": "a narrow adder"})


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.int8)


FIRES = [
    (lambda: integer_conv(ones(4, 4, 3, 3)), CHIP),
    (lambda: integer_conv(np.full((2, 1, 1, 1), -128, np.int8), group=2), CHIP),
]
SILENT = [
    (lambda: integer_conv(ones(4, 3, 3, 3)), CHIP),
    (lambda: integer_conv(ones(4, 4, 3, 3)), chip(weight_abs_sum_max="?")),
    lambda: integer_conv(ones(4, 4, 3, 3)),
    (lambda: integer_conv(ones(4, 4, 3, 3)), chip(op="MaxPool")),
]


def test_it_names_the_sum_and_the_limit():
    """Both numbers, the node and the line of the target file."""
    found = finding(FIRES[0][0](), CODE, CHIP)
    assert found.message == "the weights of one channel sum to 36; the device takes at most 30"
    assert (found.node, found.value, found.limit) == ("conv", "36", "at most 30")
    assert found.source.startswith("chip:6 operators.Conv.limits.weight_abs_sum_max")


def test_the_largest_channel_counts():
    """Signs do not cancel out, channels do not add up."""
    weight = ones(3, 1, 2, 2)
    weight[1] = [[[100, -100], [50, -50]]]
    assert finding(integer_conv(weight), CODE, CHIP).value == "300"


def test_minus_128_does_not_wrap_around():
    """Its absolute value does not fit into int8."""
    assert finding(FIRES[1][0](), CODE, CHIP).value == "128"


def test_a_depthwise_convolution_has_the_limits_of_its_mode():
    """The mode is that of the integer convolution itself."""
    target = chip(modes={"depthwise": {"weight_abs_sum_max": {"max": 8}}})
    assert findings(integer_conv(ones(3, 1, 3, 3), group=3), CODE, target)
    assert not findings(integer_conv(ones(4, 2, 3, 3), group=2), CODE, target)
    assert not findings(integer_conv(ones(3, 1, 3, 3)), CODE, target)


def test_weights_that_are_computed_are_not_judged():
    """Their sums are not known."""
    net = Net(x=(1, 1, 8, 8), w=(1, 1, 8, 8))
    scale, zero = net.constant(np.float32(1)), net.constant(np.int8(0))
    net.op("QuantizeLinear", "x", scale, zero, to="a").op(
        "QuantizeLinear", "w", scale, zero, to="b"
    )
    net.op("QLinearConv", "a", scale, zero, "b", scale, zero, scale, zero)
    net.op("DequantizeLinear", net.last, scale, zero)
    assert not findings(net.model(), CODE, chip(weight_abs_sum_max={"max": 1}))


def test_with_the_channels_last():
    """onnxruntime's own operator is looked at as well: it stands for the same Conv."""
    proto = integer_conv(ones(4, 4, 3, 3))
    proto.graph.node[1].domain = "com.microsoft"
    proto.graph.node[1].attribute.append(helper.make_attribute("channels_last", 1))
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    found = finding(proto, CODE, CHIP)
    assert (found.node, found.op_type) == ("conv", "com.microsoft.QLinearConv")
