"""How far channels reach in each sample by itself."""

from __future__ import annotations

import numpy as np
import pytest

from builders import Net
from npuconv.calibration.reaches import reaches
from npuconv.errors import CalibrationError

SHAPE = (1, 3, 4, 4)
FEEDS = [
    {"x": np.random.default_rng(k).normal(k - 1, 1, SHAPE).astype(np.float32)} for k in range(4)
]


def model(shape=SHAPE):
    return Net(x=shape).op("Relu", to="r").op("Neg", "r", to="y").model()


def test_extremes_of_every_sample_and_channel():
    """0 is within all of them."""
    found = reaches(model(), {"x": 1, "y": 1, "r": None}, FEEDS)
    exact = np.stack([feed["x"][0] for feed in FEEDS])
    lows, highs = exact.min(axis=(2, 3)), exact.max(axis=(2, 3))
    np.testing.assert_array_equal(found["x"].lows, np.minimum(lows, 0))
    np.testing.assert_array_equal(found["x"].highs, np.maximum(highs, 0))
    np.testing.assert_array_equal(found["y"].lows, -np.maximum(highs, 0))
    assert not found["y"].highs.any()
    np.testing.assert_array_equal(found["r"].highs[:, 0], np.maximum(highs, 0).max(axis=1))


def test_samples_of_other_sizes():
    """As many channels are enough."""
    feeds = [{"x": np.full((1, 3, n, n), n, np.float32)} for n in (2, 5)]
    found = reaches(model((1, 3, "h", "w")), {"x": 1}, feeds)
    assert found["x"].highs.tolist() == [[2.0] * 3, [5.0] * 3]


def test_a_tensor_with_other_channels_in_every_sample_is_left_out():
    """It has no ranges by channel."""
    feeds = [{"x": np.ones((1, n, 4, 4), np.float32)} for n in (2, 3)]
    assert set(reaches(model((1, "c", 4, 4)), {"x": 1, "y": None}, feeds)) == {"y"}


def test_nothing_to_watch():
    """The model is not even loaded."""
    assert reaches(model(), {}, FEEDS) == {}


def test_values_that_are_not_finite():
    """As calibration says it."""
    with pytest.raises(CalibrationError, match="not finite"):
        reaches(model(), {"x": 1}, [{"x": np.full(SHAPE, np.inf, np.float32)}])
