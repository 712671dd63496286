"""Tests of larger kernels."""

from __future__ import annotations

from npuconv.legalize.fitting.splits.zero_taps import enlarge_kernel
from support.builders import Net
from support.fits import fit, layer, proposals


def test_a_square_kernel():
    """Zeros where there are no taps."""
    net = Net(x=(1, 3, 9, 9)).conv("x", (2, 3, 1, 3), pads=[0, 1, 0, 1])
    found = fit(net, require=[{"then": "kernel_h == kernel_w"}])
    assert found.model.nodes("Conv")[0].attrs["kernel_shape"] == [3, 3]
    assert found.model.nodes("Conv")[0].attrs["pads"] == [0, 1, 2, 1]


def test_a_pad_in_front_where_pads_are_limited():
    """The cells that the zeros meet are there all the same."""
    net = Net(x=(1, 3, 9, 9)).conv("x", (2, 3, 2, 2))
    found = fit(net, kernel_h={"equals": 3}, kernel_w={"equals": 3}, pad_max={"max": 0})
    assert found.ops == {"Pad": 1, "Conv": 1}


def test_no_larger_kernel_is_legal():
    """No proposal is made if no larger kernel is legal."""
    assert proposals(enlarge_kernel, layer(), kernel_h={"max": 2}) == []
