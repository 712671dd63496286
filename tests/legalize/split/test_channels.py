"""Tests of fewer channels or groups at a time, and of zeros between and behind them."""

from __future__ import annotations

import numpy as np

from npuconv.legalize.split.channels import (
    add_channels,
    make_dense,
    split_groups,
    split_inputs,
)
from support.builders import Net
from support.fits import fit, layer, proposals


def test_partial_sums():
    """One of them has the bias."""
    found = fit(Net(x=(1, 8, 6, 6)).conv("x", (4, 8, 3, 3)), in_c={"max": 3})
    assert found.ops == {"Slice": 3, "Conv": 3, "Sum": 1}
    assert found.record is not None
    assert "partial sums are rounded to int8" in found.record.note


def test_parts_are_multiples():
    """Parts are multiples of the device's number; the rest gets zeros."""
    limits = {"in_c": {"max": 6}, "weight_c": {"multiple_of": 2}}
    (first, *_) = proposals(split_inputs, layer(), **limits)
    assert first.parts[0].layer.in_channels == 4


def test_groups_are_left_alone():
    """Groups have a rewrite of their own."""
    assert proposals(split_inputs, layer((8, 1, 3, 3), group=8), in_c={"max": 3}) == []


def test_an_input_without_a_shape():
    """The weights say how many channels it has."""
    then, other = (Net(prefix=name).op(op, "x") for name, op in (("a", "Identity"), ("b", "Abs")))
    other.op("Unsqueeze", other.last, other.constant(np.asarray([0], np.int64)))
    built = Net(x=(1, 8, 6, 6)).op("Abs", "x").branch(then, other)
    found = fit(built.conv("", (4, 8, 3, 3)), in_c={"max": 4})
    assert found.ops["Conv"] == 2


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
    """Single groups, or several groups as a dense convolution."""
    one = layer((8, 1, 3, 3), group=8)
    texts = [f.text for f in proposals(split_groups, one, group={"equals": 1}, in_c={"max": 4})]
    assert texts == ["1 of 8 groups at a time", "4 of 8 groups at a time"]


NONE = {"group": {"equals": 1}}


def test_one_convolution_where_starting_one_is_dear():
    """The costs of the target decide."""
    net = Net(x=(1, 4, 6, 6)).conv("x", (4, 1, 3, 3), group=4)
    assert fit(net, costs={"convolution": 1e9}, **NONE).ops == {"Conv": 1}


def test_groups_that_are_taken_stay():
    """Only a limit on groups makes them dense."""
    assert proposals(make_dense, layer((4, 1, 3, 3), group=4), in_h={"max": 4}) == []


def test_up_to_a_multiple():
    """Input and output."""
    net = Net(x=(1, 3, 6, 6)).conv("x", (5, 3, 3, 3))
    found = fit(net, in_c={"multiple_of": 4}, out_c={"multiple_of": 8})
    assert found.ops == {"Pad": 1, "Conv": 1, "Slice": 1}
    assert tuple(found.model.nodes("Conv")[0].inputs[1].shape) == (8, 4, 3, 3)


def test_depthwise_channels_come_together():
    """A group more is a channel more on both sides."""
    net = Net(x=(1, 6, 6, 6)).conv("x", (6, 1, 3, 3), group=6)
    found = fit(net, costs={"crossing": 0, "crossing_byte": 0}, in_c={"multiple_of": 8})
    assert found.model.nodes("Conv")[0].attrs["group"] == 8


def test_other_groups_are_left_alone():
    """Their channels do not stand in one row."""
    assert proposals(add_channels, layer((4, 2, 3, 3), group=2), in_c={"multiple_of": 8}) == []
