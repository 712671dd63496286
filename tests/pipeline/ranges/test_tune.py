"""What every layer's rounding costs."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from builders import Net

X = np.random.default_rng(0).standard_normal((16, 3, 8, 8)).astype(np.float32)


def shares(end: str = "") -> dict[str, float]:
    """Of three layers, by name."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (8, 3, 3, 3), name="a").op("HardSwish")
    net = net.conv("", (8, 8, 3, 3), name="b").op("HardSwish").conv("", (5, 8, 4, 4), name="c")
    if end:
        net = net.op("Mul", net.last, net.constant(1000.0)).op(end, axis=1)
    result = npuconv.convert(net.model(), calibration={"x": X}, ignore=["OPS"])
    return {layer.name: layer.noise_share for layer in result.report.quantization.layers}


def test_a_softmax_that_saturates_does_not_decide():
    """Behind it only the samples count that are nearly even between two classes."""
    found, plain = shares("Softmax"), shares()
    assert sum(plain.values()) == pytest.approx(1, abs=1e-3)
    assert found == pytest.approx(plain, rel=0.02)
