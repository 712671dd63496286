"""Tests of accumulator-scale-raised."""

from __future__ import annotations

import numpy as np

from support.asserts import finding
from support.builders import Net

CODE = "QNT005"
X = ("N", 1, 8, 8)


def biased(*biases: float, weights: tuple[float, ...]):
    """One weight and one bias for every channel."""
    net = Net(x=X)
    weight = net.constant(np.asarray(weights).reshape(-1, 1, 1, 1))
    return net.op("Conv", "x", weight, net.constant(np.asarray(biases)), name="conv").model()


FIRES = [lambda: biased(1.0, 5000.0, weights=(1.0, 1e-6)), lambda: biased(1e5, weights=(1e-6,))]
SILENT = [
    lambda: biased(1.0, 2.0, weights=(1.0, 1.0)),
    lambda: Net(x=X).conv("x", (4, 1, 3, 3), bias=False).model(),
    lambda: Net(x=X, w=(4, 1, 3, 3)).op("Conv", "x", "w").model(),
]


def test_the_channels_are_counted():
    """The message counts channels that would overflow, of all."""
    found = finding(FIRES[0](), CODE)
    assert found.message.startswith("the weight scale of 1 of 2 channels is raised")
    assert (found.node, found.value, found.limit) == ("conv", "1 channels", "0 channels")
