"""Tests of smaller strides and of phases."""

from __future__ import annotations

import pytest

from npuconv.legalize.split.stride import phases_as_channels, undo_stride
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


STRIDES = {"stride_h": {"max": 1}, "stride_w": {"max": 1}}
KERNEL = {"kernel_h": {"max": 5}, "kernel_w": {"max": 5}}


@pytest.mark.parametrize("strides", [[2, 2], [3, 2], [1, 3]])
@pytest.mark.parametrize("extent", [11, 12, 13])
def test_strides_become_channels(strides, extent):
    """Strides become channels at any extents."""
    net = Net(x=(2, 4, extent, extent + 1)).conv("x", (6, 4, 3, 4), strides=strides)
    found = fit(net, **STRIDES)
    assert found.ops["Conv"] == 1
    assert found.record is not None
    assert "phases of the input as channels" in found.record.after


def test_a_large_kernel_becomes_smaller():
    """A large kernel becomes smaller by phases of the output too."""
    net = Net(x=(1, 4, 15, 14)).conv("x", (6, 4, 7, 7), pads=[3, 3, 3, 3])
    found = fit(net, **KERNEL)
    assert found.ops == {"Pad": 1, "SpaceToDepth": 1, "Conv": 1, "DepthToSpace": 1, "Slice": 1}


def test_unequal_factors():
    """Unequal factors take Reshape and Transpose, which any runtime has."""
    net = Net(x=(1, 4, 15, 14)).conv("x", (6, 4, 3, 7))
    assert fit(net, **KERNEL).ops["Transpose"] == 2


def test_groups_and_unknown_extents_are_left_alone():
    """Phases of a depthwise convolution would mix channels."""
    depthwise = layer((8, 1, 3, 3), group=8, strides=(2, 2))
    assert proposals(phases_as_channels, depthwise, **STRIDES) == []
    unknown = layer(source=(1, 8, None, None), strides=(2, 2))
    assert proposals(phases_as_channels, unknown, **STRIDES) == []
