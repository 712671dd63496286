"""Tests of the rewrite of biases."""

from __future__ import annotations

from support.builders import Net
from support.fits import fit


def test_zeros_where_one_is_needed():
    """A bias of zeros changes no number."""
    found = fit(Net(x=(1, 3, 6, 6)).conv("x", (2, 3, 3, 3), bias=False), bias={"equals": True})
    assert found.ops == {"Conv": 1}
    assert len(found.model.nodes("Conv")[0].inputs) == 3


def test_an_add_behind_where_there_is_none():
    """The host adds it, or the device."""
    found = fit(Net(x=(1, 3, 6, 6)).conv("x", (2, 3, 3, 3)), bias={"equals": False})
    assert found.ops == {"Conv": 1, "Add": 1}


def test_parts_without_a_bias():
    """All but one get zeros."""
    found = fit(Net(x=(1, 4, 6, 6)).conv("x", (2, 4, 3, 3)), bias={"equals": True}, in_c={"max": 2})
    assert {len(n.inputs) for n in found.model.nodes("Conv")} == {3}
