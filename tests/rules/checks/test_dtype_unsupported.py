"""Tests of dtype-unsupported."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from support.asserts import finding, findings
from support.builders import Net, integer_conv
from support.target_files import chip

CODE = "DTY001"
ONES = np.ones((4, 3, 3, 3), np.int8)
FIRES = [
    lambda: integer_conv(ONES, dtype=np.uint8),
    lambda: integer_conv(ONES.astype(np.uint8)),
    (lambda: integer_conv(ONES, dtype=np.uint8), chip(dtype={"equals": "int8"})),
    (lambda: integer_conv(ONES.astype(np.uint8)), chip(weight_dtype={"equals": "int8"})),
    (lambda: integer_conv(ONES), chip(bias_dtype=["int16"])),
]
SILENT = [
    lambda: integer_conv(ONES),
    (lambda: integer_conv(ONES, bias=None), chip(bias_dtype=["int16"])),
    (lambda: integer_conv(ONES, dtype=np.uint8), chip(dtype=["int8", "uint8"])),
    lambda: Net(x=(1, 3, 8, 8)).conv("x").model(),
]


@pytest.mark.parametrize(
    ("build", "fact"), [(FIRES[0], "dtype"), (FIRES[1], "weight_dtype")], ids=["input", "weights"]
)
def test_it_names_the_part(build, fact):
    """Activations and weights have limits of their own."""
    found = finding(build(), CODE)
    assert found.message == f"{fact} is uint8; the device takes int8"
    assert (found.node, found.value, found.limit) == ("conv", "uint8", "int8")
    assert "(notes/T: only INT8)" in found.source


def test_the_bias_has_a_type_too():
    """The bias is int32, as ONNX wants it."""
    found = finding(integer_conv(ONES), CODE, chip(bias_dtype=["int16", "int8"]))
    assert found.message == "bias_dtype is int32; the device takes int16 or int8"


def test_every_part_is_a_finding():
    """All parts of an emitted convolution are checked."""
    proto = integer_conv(ONES.astype(np.uint8), dtype=np.uint8)
    assert len(findings(proto, CODE)) == 2


def test_a_mode_has_types_of_its_own():
    """Grouped, neither plain nor depthwise."""
    target = chip(modes={"grouped": {"weight_dtype": ["int4"]}})
    assert findings(integer_conv(np.ones((4, 2, 3, 3), np.int8), group=2), CODE, target)
    assert not findings(integer_conv(np.ones((4, 1, 3, 3), np.int8), group=4), CODE, target)


def test_with_the_channels_last():
    """onnxruntime's own operator is looked at as well: it stands for the same Conv."""
    proto = integer_conv(ONES, dtype=np.uint8)
    proto.graph.node[1].domain = "com.microsoft"
    proto.graph.node[1].attribute.append(helper.make_attribute("channels_last", 1))
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    found = finding(proto, CODE)
    assert (found.node, found.op_type) == ("conv", "com.microsoft.QLinearConv")
