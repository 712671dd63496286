"""Tests of a bias as products of constant integers with int8 weights."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.arithmetic.bias_channels import columns, largest_bias


@pytest.mark.parametrize("count", [2, 3, 7])
def test_every_bias_is_exact(count):
    """Up to the largest, of both signs."""
    most = largest_bias(count)
    bias = np.asarray([0, 1, -64, 127 * 64, most - 1, -most, most // 2 + 63], np.int32)
    constants, weights = columns(bias, count)
    assert np.array_equal(weights.astype(int) @ constants.astype(int), bias)
    assert np.abs(weights.astype(int)).max() <= 127


def test_one_constant_is_as_small_as_it_can_be():
    """The error is half of it."""
    bias = np.asarray([300, -1, 5], np.int32)
    constants, weights = columns(bias, 1)
    assert constants.tolist() == [3]
    assert np.abs(weights[:, 0].astype(int) * 3 - bias).max() <= 1


def test_no_bias_at_all():
    """Weights of zero, and no division by a constant of zero."""
    constants, weights = columns(np.zeros(3, np.int32), 1)
    assert (constants.tolist(), weights.any()) == ([1], False)
