"""Limits and figures of the benchmark of fitting in int8."""

from __future__ import annotations

import math

import pytest
from harness.split_error import LARGEST_DB, limits_of, needs, per_sample, spread

from npuconv.evaluate.interval import Powers
from support.builders import Net


def test_limits_are_half_of_what_a_model_needs():
    """The largest of each kind over all convolutions, rounded up."""
    net = Net(x=(1, 4, 9, 6)).conv("x", (8, 4, 3, 3)).conv("", (6, 8, 1, 1))
    found = needs(net.model())
    assert found == {"weight_n": 8, "in_c": 8, "in_h": 9, "in_w": 6, "kernel_w": 3}
    limits = limits_of(found)
    assert limits["tiles"] == ("in_h=5", "in_w=3")
    assert limits["input channels"] == ("in_c=4",)
    assert limits["stride 1"] == ("stride_h=1", "stride_w=1")


def test_each_sample_counts_as_much_as_another():
    """One that is exact, or nearly so, is not worth more than what can be seen."""
    found = per_sample([Powers(1.0, 0.1), Powers(1.0, 1e-9), Powers(1.0, 0.0)])
    assert found.tolist() == pytest.approx([10.0, LARGEST_DB, LARGEST_DB])
    assert math.isclose(found.mean(), (10 + 2 * LARGEST_DB) / 3)


def test_differences_of_several_folds_have_a_least():
    """A single one is only itself."""
    assert (spread([-0.5]), spread([-0.5, 0.1])) == ("-0.50", "-0.20, least -0.50")
