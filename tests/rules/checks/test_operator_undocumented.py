"""Tests of operator-undocumented."""

from __future__ import annotations

import pytest

from support.asserts import finding, findings
from support.builders import Net
from support.target_files import chip

CODE = "OPS001"
X = (1, 3, 8, 8)


def relu():
    return Net(x=X).op("Relu", name="relu").model()


def after_conv(op: str = "Relu", **attrs):
    return Net(x=X).conv("x").op(op, name="act", **attrs).model()


FUSED = {"fused_activations": {"one_of": ["Relu"]}}
FIRES = [
    relu,
    lambda: after_conv("Sigmoid"),
    lambda: Net(x=X).op("Gelu", domain="com.microsoft").model(),
    (after_conv, chip(also={"fused_activations": ["Clip"]})),
    (
        lambda: Net(x=X).op("MaxPool", kernel_shape=[2, 2]).op("Relu").model(),
        chip("MaxPool", also=FUSED),
    ),
    (after_conv, chip("MaxPool", also=FUSED)),
    (lambda: after_conv(domain="com.microsoft"), chip(also=FUSED)),
]
SILENT = [
    lambda: Net(x=X).conv("x").model(),
    after_conv,
    (after_conv, chip(also=FUSED)),
    (relu, chip("Relu")),
    (relu, chip(also={"unlisted_operators": "host"})),
    (relu, chip(also={"unlisted_operators": "error"})),
    lambda: Net(x=X).op("Mystery", domain="org.example").conv().model(),
    lambda: Net(x=X).conv("x", (3, 4, 3, 3), op="ConvTranspose").model(),
]


def test_it_is_a_note():
    """Undocumented is not unsupported, so it blocks nothing."""
    found = finding(relu(), CODE)
    assert "npu-int8" in found.message
    assert "runs on the host" in found.message
    assert (found.severity, found.node, found.value) == ("note", "relu", "Relu")
    assert (found.op_type, found.source) == ("Relu", "npu-int8: unlisted_operators")


def test_the_domain_is_part_of_the_name():
    """An operator of onnxruntime runs on the host like any other."""
    assert finding(FIRES[2](), CODE).value == "com.microsoft.Gelu"


@pytest.mark.parametrize(("op", "count"), [("Relu", 0), ("Clip", 0), ("Elu", 1)])
def test_an_activation_the_convolution_applies_itself(op, count):
    """An unknown fusion is assumed."""
    assert len(findings(after_conv(op), CODE)) == count


def test_a_constant_node_is_no_work():
    """A Constant node is data."""
    net = Net(x=X).op("Constant", "", value_float=1.0).op("Add", "x", "t0")
    net.nodes[0].ClearField("input")
    assert [f.value for f in findings(net.model(), CODE)] == ["Add"]
