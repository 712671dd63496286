"""Tests of weights-with-outliers."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.rules.checks.weights_with_outliers import find_outliers
from support.asserts import finding
from support.builders import Net

CODE = "QNT004"
X = (1, 16, 8, 8)
TENSOR = {"granularity": "tensor"}


def convolution(outlier: float, *, rows: int = 1, dtype: type = np.float32):
    """Weights of one size, but for the first of some channels."""
    weight = np.random.default_rng(0).uniform(-1, 1, (4, 16, 3, 3))
    weight[:rows, 0, 0, 0] = outlier
    net = Net(x=X)
    return net.op("Conv", "x", net.constant(weight.astype(dtype)), name="conv").model()


FIRES = [lambda: convolution(100.0), lambda: convolution(-100.0, rows=3)]
SILENT = [
    lambda: convolution(10.0),
    lambda: convolution(1e6),  # it alone matters
    lambda: convolution(1.0),
    lambda: Net(x=X).conv("x", (16, 1, 3, 3), group=16).model(),
    lambda: Net(x=X, w=(4, 16, 3, 3)).op("Conv", "x", "w").model(),
    lambda: convolution(np.inf),
    lambda: convolution(0.0),
]


def test_the_channels_are_counted():
    """The message has the number of channels, size of outliers, and levels left."""
    found = finding(FIRES[1](), CODE)
    assert found.message.startswith("3 of 4 channels have outlier weights, up to ")
    assert "times the rms" in found.message
    assert (found.node, found.value) == ("conv", "3 channels")


@pytest.mark.parametrize("outlier", [40.0, 100.0])
def test_the_noise_is_that_of_rounding(outlier):
    """Signal over rounding error of the channels that have outliers."""
    weight = np.random.default_rng(1).uniform(-1, 1, (3, 400)).astype(np.float32)
    weight[1, 7] = outlier
    found = find_outliers(weight)
    step = outlier / 127
    error = weight[1] - np.rint(weight[1] / step) * step
    assert found is not None
    assert found.rows == 1
    assert found.sqnr_db == pytest.approx(
        10 * np.log10(np.sum(weight[1] ** 2.0) / np.sum(error**2.0)), abs=0.01
    )


def test_one_scale_for_all_channels():
    """One scale lets a channel suffer from the outlier of another."""
    weight = np.random.default_rng(1).uniform(-1, 1, (4, 10, 3, 3)).astype(np.float32)
    weight[0, 0, 0, 0] = 100.0
    assert find_outliers(weight) is None  # 90 weights in a channel: one is more than 1 %
    found = find_outliers(weight, per_tensor=True)
    assert found is not None
    assert found.rows == 4


def test_zeros_lose_nothing():
    """Sparse weights, as of a filter bank, are exact."""
    weight = np.zeros((4, 1000), np.float32)
    weight[:, ::200] = 1.0
    assert find_outliers(weight) is None
