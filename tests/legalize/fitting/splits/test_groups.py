"""Tests of fewer groups at a time."""

from __future__ import annotations

from npuconv.legalize.fitting.splits.groups import split_groups
from support.builders import Net
from support.fits import fit, layer, proposals


def test_a_depthwise_convolution_of_many_channels():
    """Each part has the channels that the device takes at a time."""
    net = Net(x=(1, 8, 6, 6)).conv("x", (8, 1, 3, 3), group=8)
    found = fit(net, in_c={"max": 4})
    assert found.ops == {"Slice": 2, "Conv": 2, "Concat": 1}


def test_channels_of_a_multiplier_stay_together():
    """Two outputs for each channel."""
    net = Net(x=(1, 6, 6, 6)).conv("x", (12, 1, 3, 3), group=6)
    assert fit(net, out_c={"max": 4}).ops["Conv"] == 3


def test_sizes_with_and_without_zeros():
    """Groups as they are, and some of them as one dense convolution."""
    one = layer((8, 1, 3, 3), group=8)
    texts = [f.text for f in proposals(split_groups, one, group={"equals": 1}, in_c={"max": 4})]
    assert texts == ["1 of 8 groups at a time", "4 of 8 groups at a time"]
