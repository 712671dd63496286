"""Tests of channel-dead."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.findings import Severity
from support.asserts import finding
from support.builders import Net

CODE = "CAL003"
X = ("N", 1, 8, 8)


def shifted(*biases: float, relu: bool = True):
    """Channels that are the input plus these."""
    net, count = Net(x=X), len(biases)
    weight = net.constant(np.ones((count, 1, 1, 1)))
    net.op("Conv", "x", weight, net.constant(np.asarray(biases)), name="conv")
    return (net.op("Relu") if relu else net).model()


def without_weights():
    """Half of the channels are their bias, whatever comes in."""
    net = Net(x=X)
    weight = net.constant(np.asarray([0.0, 1.0]).reshape(2, 1, 1, 1))
    return net.op("Conv", "x", weight, net.constant(np.ones(2)), name="conv").model()


FIRES = [lambda: shifted(0.0, -5.0, -6.0), without_weights]
SILENT = [
    lambda: shifted(0.0, 5.0, 0.1),
    lambda: shifted(0.0, -5.0, -6.0, relu=False),
    lambda: shifted(-5.0),
]


def test_they_are_counted_behind_the_activation():
    """Channels that a Relu cuts off are dead."""
    found = finding(FIRES[0](), CODE)
    assert found.message == ("2 of 3 channels (67 %) have one and the same value in all 6 samples")
    assert (found.node, found.value) == ("conv", "2 of 3")


@pytest.mark.parametrize(("dead", "severity"), [(1, Severity.NOTE), (2, Severity.WARNING)])
def test_few_are_a_note(dead, severity):
    """Training switches some off."""
    assert finding(shifted(*[-5.0] * dead, *[0.0] * (4 - dead)), CODE).severity == severity
