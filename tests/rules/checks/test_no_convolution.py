"""Tests of no-convolution."""

from __future__ import annotations

import numpy as np

from support.asserts import finding
from support.builders import Net, integer_conv
from support.target_files import chip

CODE = "MDL002"
X = (1, 3, 8, 8)
FIRES = [
    lambda: Net(x=X).op("Relu").model(),
    lambda: Net(x=X).op("ConvertLayout", domain="org.example").model(),
    (lambda: Net(x=X).op("Relu").model(), chip("MaxPool")),
]
SILENT = [
    lambda: Net(x=X).conv("x").model(),
    lambda: Net(x=X).conv("x", (3, 4, 3, 3), op="ConvTranspose").model(),
    lambda: integer_conv(np.ones((4, 3, 3, 3), np.int8)),
    lambda: Net(x=X).branch(Net(prefix="a").conv("x"), Net(prefix="b").op("Relu", "x")).model(),
    (lambda: Net(x=X).op("MaxPool", kernel_shape=[2, 2]).model(), chip("MaxPool")),
]


def test_it_says_what_there_is_instead():
    """The model's operators, and the target that has nothing to do."""
    proto = Net(x=X).op("Relu").op("Gelu", domain="com.microsoft").op("Neg").op("Relu").model()
    found = finding(proto, CODE)
    assert found.message == "the model has no convolution, so nothing of it would run on npu-int8"
    assert found.value == "Neg, Relu, com.microsoft.Gelu"
    assert (found.node, found.limit) == ("", "at least one Conv")
