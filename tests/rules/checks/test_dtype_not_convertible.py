"""Tests of dtype-not-convertible."""

from __future__ import annotations

import numpy as np
import pytest

from support.asserts import finding
from support.builders import Net

CODE = "DTY002"
X = (1, 3, 8, 8)


def weighted(dtype: type, op: str = "Conv"):
    net = Net(x=X)
    return net.op(op, "x", net.constant(np.ones((3, 3, 3, 3), dtype)), name="conv").model()


def fed(dtype: type):
    net = Net(x=X)
    net.op("QuantizeLinear", "x", net.constant(np.float32(1)), net.constant(dtype(0)))
    return net.conv(net.last).model()


FIRES = [
    lambda: weighted(np.int32),
    lambda: weighted(np.int8, "ConvTranspose"),
    lambda: fed(np.int8),
    lambda: fed(np.uint8),
]
SILENT = [
    lambda: weighted(np.float32),
    lambda: weighted(np.float16),
    lambda: weighted(np.float64),
    lambda: Net(x=X).op("Mystery", domain="org.example").conv().model(),
    lambda: Net(x=X).op("Relu").model(),
]


@pytest.mark.parametrize(
    ("build", "dtype"), [(FIRES[0], "int32"), (FIRES[2], "int8"), (FIRES[3], "uint8")]
)
def test_it_names_the_type(build, dtype):
    """The type is that of the input, or of the weights."""
    found = finding(build(), CODE)
    assert found.message == f"it computes in {dtype}; only float models are quantized"
    assert (found.value, found.limit) == (dtype, "float32, float16, bfloat16 or double")


def test_one_finding_where_both_are_wrong():
    """A convolution is of one type."""
    net = Net(x=X)
    net.op("QuantizeLinear", "x", net.constant(np.float32(1)), net.constant(np.int8(0)))
    net.op("Conv", net.last, net.constant(np.ones((3, 3, 3, 3), np.int8)))
    assert finding(net.model(), CODE).value == "int8"
