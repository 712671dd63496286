"""Tests of channels of zeros."""

from __future__ import annotations

from npuconv.legalize.fitting.splits.zero_channels import add_channels
from support.builders import Net
from support.fits import fit, layer, proposals


def test_up_to_a_multiple():
    """Input and output."""
    net = Net(x=(1, 3, 6, 6)).conv("x", (5, 3, 3, 3))
    found = fit(net, in_c={"multiple_of": 4}, out_c={"multiple_of": 8})
    assert found.ops == {"Pad": 1, "Conv": 1, "Slice": 1}
    assert tuple(found.model.nodes("Conv")[0].inputs[1].shape) == (8, 4, 3, 3)


def test_depthwise_channels_come_together():
    """A group more is a channel more on both sides."""
    net = Net(x=(1, 6, 6, 6)).conv("x", (6, 1, 3, 3), group=6)
    found = fit(net, in_c={"multiple_of": 8})
    assert found.model.nodes("Conv")[0].attrs["group"] == 8


def test_other_groups_are_left_alone():
    """Their channels do not stand in one row."""
    assert proposals(add_channels, layer((4, 2, 3, 3), group=2), in_c={"multiple_of": 8}) == []
