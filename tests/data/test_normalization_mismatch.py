"""Tests of the comparison of samples with those of training."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.arithmetic.statistics import Statistics
from npuconv.config import Preprocess
from npuconv.data import open_samples
from npuconv.data.model_inputs import sample_inputs
from npuconv.data.normalization_mismatch import find_mismatch
from npuconv.model import save
from npuconv.rules.context import Violation
from support.asserts import read
from support.builders import Net

PIXELS = np.linspace(0, 255, 4 * 3 * 16 * 16, dtype=np.float32).reshape(4, 3, 16, 16)
NO_STATISTICS: dict[str, Statistics] = {}


def mismatch(net: Net, array: np.ndarray) -> Violation | None:
    model = read(net.model())
    inputs, _ = sample_inputs(model, save.to_proto(model), None)
    samples = open_samples({"x": array}, inputs, Preprocess())
    return find_mismatch(model, samples, NO_STATISTICS)


def with_mean_pixel(net: Net) -> Net:
    """Append a convolution whose bias subtracts a mean pixel of 120."""
    weight = np.random.default_rng(0).normal(size=(16, 3, 3, 3)) / 300
    bias = -120 * weight.sum(axis=(1, 2, 3))
    return net.op("Conv", net.last, net.constant(weight), net.constant(bias))


def image() -> Net:
    return Net(x=("N", 3, 16, 16))


@pytest.mark.parametrize("build", [
    image,
    lambda: image().op("Transpose", perm=[0, 1, 3, 2]),
    lambda: image().pad([0, 0, 1, 1, 0, 0, 1, 1]),
])  # fmt: skip
def test_what_may_stand_before_the_first_convolution(build):
    """Order and padding may stand before the first convolution."""
    found = mismatch(with_mean_pixel(build()), PIXELS / 255)
    assert found is not None
    assert (found.value, found.limit.split(" or ")[0]) == ("0..1", "0..255")
    assert "--preprocess raw" in found.values["claim"]
    assert mismatch(with_mean_pixel(build()), PIXELS) is None


def test_few_channels_are_no_evidence():
    """A first layer of few channels is not judged."""
    net = image()
    net.op("Conv", "x", net.constant(np.ones((4, 3, 3, 3)) / 99), net.constant(np.full(4, -30.0)))
    assert mismatch(net, PIXELS / 255) is None


def test_sound_is_no_image():
    """Sound has no other normalization."""
    sound = np.linspace(-1, 1, 4 * 1 * 64, dtype=np.float32).reshape(4, 1, 64)
    assert mismatch(Net(x=("N", 1, 64)).conv("x", (8, 1, 3)), sound) is None


def test_other_ranges_are_not_judged():
    """Samples of an unknown range are not judged."""
    assert mismatch(with_mean_pixel(image()), PIXELS * 7) is None
