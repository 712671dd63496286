"""Tests of the usual normalizations of pixels."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.data.normalizations import (
    CENTRED,
    HALF,
    IMAGENET,
    RAW,
    SIGNED,
    UNIT,
    guess,
)

PIXELS = np.linspace(0, 255, 4 * 3 * 16 * 16, dtype=np.float32).reshape(4, 3, 16, 16)
ALL = (RAW, UNIT, SIGNED, IMAGENET, CENTRED, HALF)


@pytest.mark.parametrize("item", ALL, ids=lambda item: item.name)
def test_a_normalization_is_recognized_by_its_range(item):
    """The range tells the normalization, which can be undone on either axis."""
    assert guess(item.apply(PIXELS, 1)) == item
    np.testing.assert_allclose(item.undo(item.apply(PIXELS, 1), 1), PIXELS, atol=1e-3)
    last = PIXELS.transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(item.apply(last, 3), item.apply(PIXELS, 1).transpose(0, 2, 3, 1))


@pytest.mark.parametrize("values", [[-300.0, 300.0], [0.0, 0.0], [0.0, 1e9], [-1.0, -0.5]])
def test_other_ranges_say_nothing(values):
    """Ranges that hold none of the usual ones well give no normalization."""
    assert guess(np.asarray(values, np.float32)) is None


def test_no_values_have_no_normalization():
    """A detector that found nothing hands on a tensor without values."""
    assert guess(np.zeros(0, np.float32)) is None
