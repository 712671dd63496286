"""Tests of smaller strides."""

from __future__ import annotations

from npuconv.legalize.fitting.splits.stride import undo_stride
from support.builders import Net
from support.fits import fit, layer, proposals


def test_the_largest_legal_divisor_first():
    """The largest legal divisor computes the fewest unused outputs."""
    limits = {"stride_h": {"max": 3}, "stride_w": {"max": 3}}
    forms = proposals(undo_stride, layer(strides=(4, 4)), **limits)
    assert next(f.text for f in forms) == "stride 2x2, then a Slice"


def test_unknown_extents():
    """A Slice with a step needs none."""
    net = Net(x=("N", 8, "H", "W")).conv("x", (8, 1, 3, 3), group=8, strides=[2, 2], pads=[1] * 4)
    found = fit(net, stride_h={"max": 1}, stride_w={"max": 1})
    assert found.ops == {"Conv": 1, "Slice": 1}


def test_strides_that_must_be_equal():
    """Both become the common divisor."""
    net = Net(x=(1, 8, 9, 9)).conv("x", (8, 1, 3, 3), group=8, strides=[4, 2])
    assert fit(net, require=[{"then": "stride_h == stride_w"}]).fired == 1
