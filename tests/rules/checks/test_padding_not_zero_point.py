"""Tests of padding-not-zero-point."""

from __future__ import annotations

import numpy as np
from onnx import helper

from support.asserts import finding, findings
from support.builders import Net, integer_conv
from support.target_files import chip

CODE = "QNT001"
ONES = np.ones((4, 3, 3, 3), np.int8)
PADS = {"pads": [1, 1, 1, 1]}
FIRES = [
    lambda: integer_conv(ONES, zero=-7, **PADS),
    lambda: integer_conv(ONES, zero=5, pads=[0, 0, 0, 1]),
    (lambda: integer_conv(ONES, **PADS), chip(pad_value={"equals": -128})),
]
SILENT = [
    lambda: integer_conv(ONES, **PADS),
    lambda: integer_conv(ONES, zero=-7),
    lambda: integer_conv(ONES, zero=-7, pads=[0, 0, 0, 0]),
    (lambda: integer_conv(ONES, zero=-7, **PADS), chip()),
    (lambda: integer_conv(ONES, zero=-7, **PADS), chip(pad_value="?")),
    lambda: Net(x=(1, 3, 8, 8)).conv("x", **PADS).model(),
]


def test_it_names_both_numbers():
    """The message has the runtime's fill and the device's."""
    found = finding(FIRES[0](), CODE)
    assert found.message == "it pads, and its input has zero point -7; the device fills with 0"
    assert (found.node, found.value, found.limit) == ("conv", "zero point -7", "0")
    assert "(notes/pads: the fill value can only be 0)" in found.source


def test_a_zero_point_that_is_computed_is_not_judged():
    """A computed zero point is unknown here."""
    proto = integer_conv(ONES, zero=-7, **PADS)
    point = proto.graph.node[1].input[2]
    proto.graph.node.insert(0, Net().op("Identity", point, to="late").nodes[0])
    proto.graph.node[2].input[2] = "late"
    assert not findings(proto, CODE)


def test_with_the_channels_last():
    """onnxruntime's own operator is looked at as well: it stands for the same Conv."""
    proto = integer_conv(ONES, zero=-7, **PADS)
    proto.graph.node[1].domain = "com.microsoft"
    proto.graph.node[1].attribute.append(helper.make_attribute("channels_last", 1))
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    found = finding(proto, CODE)
    assert (found.node, found.op_type) == ("conv", "com.microsoft.QLinearConv")
