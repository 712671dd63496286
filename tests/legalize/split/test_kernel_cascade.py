"""Tests of averages of averages."""

from __future__ import annotations

import numpy as np

from npuconv.legalize.split.kernel import cascade_average
from support.builders import Net
from support.fits import fit, layer, proposals

LIMITS = {"kernel_h": {"max": 5}, "kernel_w": {"max": 5}}


def mean(extent: int, channels: int = 3, **attrs) -> Net:
    net = Net(x=(1, channels, extent, extent))
    weight = net.constant(np.full((channels, 1, extent, extent), 1 / extent**2))
    return net.op("Conv", "x", weight, group=channels, **attrs)


def test_an_average_over_all():
    """Two convolutions instead of one, and far fewer weights."""
    found = fit(mean(20), **LIMITS)
    assert found.ops == {"Conv": 2}
    kernels = [n.attrs["kernel_shape"] for n in found.model.nodes("Conv")]
    assert [a * b for a, b in zip(*kernels, strict=True)] == [20, 20]


def test_a_prime_extent_gets_zeros():
    """Zeros add nothing to the sum."""
    assert fit(mean(23), **LIMITS).ops == {"Pad": 1, "Conv": 2}


def test_three_steps():
    """A second average that is still too large is one of averages again."""
    assert fit(mean(60), **LIMITS).ops["Conv"] == 3


def test_weights_that_differ_are_no_average():
    """Different weights, or several input channels, are no average."""
    assert proposals(cascade_average, layer((4, 1, 9, 9), 9, group=4), **LIMITS) == []
    assert proposals(cascade_average, layer((4, 4, 9, 9), 9, uniform=True), **LIMITS) == []
