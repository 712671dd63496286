"""Limits of the benchmark of fitting in int8."""

from __future__ import annotations

from fitting_int8 import limits_of, needs

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
