"""Tests of input channels in parts."""

from __future__ import annotations

import numpy as np

from npuconv.legalize.fitting.splits.inputs import split_inputs
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
