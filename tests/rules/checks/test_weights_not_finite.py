"""Tests of weights-not-finite."""

from __future__ import annotations

import numpy as np

from support.asserts import finding
from support.builders import Net

CODE = "DTY003"
X = (1, 3, 8, 8)


def convolution(*bad: float) -> Net:
    """A convolution whose first weights are these."""
    weight = np.ones((4, 3, 3, 3), np.float32)
    weight.reshape(-1)[: len(bad)] = bad
    net = Net(x=X)
    return net.op("Conv", "x", net.constant(weight), name="conv")


FIRES = [
    lambda: convolution(np.nan).model(),
    lambda: convolution(np.inf, -np.inf).model(),
]
SILENT = [
    lambda: convolution().model(),
    lambda: Net(x=X, w=(4, 3, 3, 3)).op("Conv", "x", "w").model(),
]


def test_how_many_are_counted():
    """Infinities of both signs."""
    found = finding(FIRES[1](), CODE)
    assert found.message == "2 of 108 weights are NaN or infinite"
    assert (found.node, found.value, found.limit) == ("conv", "2", "0")
