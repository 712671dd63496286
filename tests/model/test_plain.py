"""Shapes that ONNX's own inference gets wrong, or knew nothing of at old opsets."""

from __future__ import annotations

import pytest

import npuconv
from npuconv.model import query
from support.asserts import read
from support.builders import Net

X = (1, 4, 6, 5)


def made(net: Net) -> tuple:
    """The shape of the last node's output."""
    proto = net.model()
    proto.graph.output[0].type.tensor_type.ClearField("shape")  # which inference has put there
    return query.shape(read(proto).nodes()[-1].outputs[0])


@pytest.mark.parametrize("opset", [11, 21])
@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({"auto_pad": "SAME_UPPER", "strides": [2, 2], "output_padding": [1, 1]}, (12, 10)),
        ({"auto_pad": "SAME_LOWER", "strides": [4, 4]}, (24, 20)),
        ({"auto_pad": "SAME_UPPER", "pads": [0, 0, 0, 0]}, (6, 5)),
        ({"auto_pad": "VALID", "pads": [0, 0, 0, 0]}, (8, 7)),
        ({"output_shape": [3, 5]}, (3, 5)),
        ({"output_shape": [9, 9], "pads": [1, 1, 1, 1]}, (9, 9)),
    ],
)
def test_transposed(opset, attrs, expected):
    """Stride times extent for SAME, and what output_shape says."""
    net = Net(x=X, opset=opset).conv("x", (4, 2, 3, 3), op="ConvTranspose", **attrs)
    assert made(net) == (1, 2, *expected)


def test_same_beside_zero_pads():
    """The zeros mean nothing."""
    net = Net(x=X).conv("x", (4, 4, 3, 3), auto_pad="SAME_UPPER", pads=[0, 0, 0, 0])
    assert made(net) == (1, 4, 6, 5)


@pytest.mark.parametrize("opset", [13, 22])
def test_a_window_behind_the_input(opset):
    """Along one axis the last window does not count, along the other it does."""
    net = Net(x=X, opset=opset)
    net.op("MaxPool", kernel_shape=[1, 2], strides=[2, 2], ceil_mode=1)
    assert made(net) == (1, 4, 3, 3)
    net.op("AveragePool", kernel_shape=[1, 1], strides=[2, 3], ceil_mode=1)
    assert made(net) == (1, 4, 2, 1)


def test_opset_1():
    """Nothing was known of these."""
    net = Net(x=X, opset=1, ir_version=3)
    net.op("Relu").op("Pad", paddings=[0, 0, 1, 1, 0, 0, 1, 1])
    net.op("Mul", net.last, net.random(4), broadcast=1, axis=1)
    assert made(net) == (1, 4, 8, 7)


@pytest.mark.parametrize("name", ["strides", "dilations", "output_padding"])
def test_attributes_of_a_wrong_length(name):
    """Nothing can be worked out of them; a rule says so later on."""
    attrs = {"auto_pad": "SAME_UPPER", name: [1, 1, 1]}
    model = Net(x=(1, 3, 8, 8)).conv("x", (3, 4, 3, 3), op="ConvTranspose", **attrs).model()
    report = npuconv.check(model)
    assert report.summary.verdict == "refused"
    assert any(name in finding.message for finding in report.findings)
