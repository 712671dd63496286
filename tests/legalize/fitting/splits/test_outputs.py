"""Tests of output channels in parts."""

from __future__ import annotations

from support.builders import Net
from support.fits import fit


def test_side_by_side():
    """All read the same input."""
    found = fit(Net(x=(1, 8, 6, 6)).conv("x", (5, 8, 3, 3)), out_c={"max": 2})
    assert found.ops == {"Conv": 3, "Concat": 1}


def test_without_a_bias():
    """None is made."""
    found = fit(Net(x=(1, 8, 6, 6)).conv("x", (4, 8, 3, 3), bias=False), weight_n={"max": 2})
    assert {len(n.inputs) for n in found.model.nodes("Conv")} == {2}


def test_a_memory_for_weights():
    """A relation between inputs, kernel and outputs: the cheapest of them gives way."""
    net = Net(x=(1, 8, 6, 6)).conv("x", (8, 8, 3, 3))
    found = fit(net, require=[{"then": "kernel_volume * out_c <= 300"}])
    assert found.ops == {"Conv": 2, "Concat": 1}
