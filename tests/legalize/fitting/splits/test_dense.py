"""Tests of zeros between the groups."""

from __future__ import annotations

from npuconv.legalize.fitting.splits.dense import make_dense
from support.builders import Net
from support.fits import fit, layer, proposals

NONE = {"group": {"equals": 1}}


def test_one_convolution_where_starting_one_is_dear():
    """The costs of the target decide."""
    net = Net(x=(1, 4, 6, 6)).conv("x", (4, 1, 3, 3), group=4)
    assert fit(net, costs={"convolution": 1e9}, **NONE).ops == {"Conv": 1}


def test_groups_that_are_taken_stay():
    """Only a limit on groups makes them dense."""
    assert proposals(make_dense, layer((4, 1, 3, 3), group=4), in_h={"max": 4}) == []
