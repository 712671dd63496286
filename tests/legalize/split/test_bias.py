"""Tests of the rewrite of biases."""

from __future__ import annotations

import pytest

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


def device(**limits: object) -> dict[str, object]:
    """A device that adds nothing, but puts constants beside a tensor."""
    conv = {"limits": {"bias": {"equals": False}, **limits}}
    return {"operators": {"Conv": conv, "Concat": {}}, "unlisted_operators": "error"}


@pytest.mark.parametrize(
    "attrs",
    [
        {},
        {"pads": [1, 1, 1, 1]},
        {"pads": [0, 1, 2, 2], "strides": [2, 2]},
        {"pads": [2, 0, 2, 0], "dilations": [2, 3]},
    ],
)
def test_channels_of_a_constant(attrs):
    """A tap that never reads padding has the bias."""
    found = fit(Net(x=(2, 3, 9, 9)).conv("x", (4, 3, 3, 3), **attrs), also=device())
    assert found.ops == {"Conv": 1, "Concat": 1}
    assert found.record is not None
    assert "as 3 input channels of a constant" in found.record.after


def test_no_tap_is_inside():
    """Every tap reads padding for some output, so the border is made before."""
    net = Net(x=(1, 3, 1, 2)).conv("x", (4, 3, 3, 3), pads=[2, 2, 2, 2])
    assert fit(net, also=device()).ops == {"Conv": 1, "Concat": 1, "Pad": 1}


def test_channels_that_the_device_takes():
    """A multiple has more of them, and a small number of channels fewer."""
    net = Net(x=(1, 3, 9, 9)).conv("x", (4, 3, 3, 3))
    found = fit(net, also=device(in_c={"multiple_of": 8}))
    assert found.model.nodes("Conv")[0].inputs[1].shape[1] == 8
    found = fit(net, also=device(in_c={"max": 4}))
    assert found.model.nodes("Conv")[0].inputs[1].shape[1] == 4


def test_groups_become_dense():
    """A group would need a constant of its own."""
    net = Net(x=(1, 4, 9, 9)).conv("x", (4, 1, 3, 3), group=4)
    assert fit(net, also=device()).ops["Concat"] > 0


def test_nobody_adds():
    """The bias stays where nobody puts a constant beside a tensor either."""
    also = {**device(), "operators": {"Conv": {"limits": {"bias": {"equals": False}}}}}
    found = fit(Net(x=(1, 3, 9, 9)).conv("x", (4, 3, 3, 3)), also=also)
    assert found.refusals == ["no rewrite changes this: bias is true, the device takes false"]


def test_parts_without_a_bias():
    """All but one get zeros."""
    found = fit(Net(x=(1, 4, 6, 6)).conv("x", (2, 4, 3, 3)), bias={"equals": True}, in_c={"max": 2})
    assert {len(n.inputs) for n in found.model.nodes("Conv")} == {3}
