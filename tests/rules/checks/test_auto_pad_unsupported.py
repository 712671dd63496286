"""Tests of auto-pad-unsupported."""

from __future__ import annotations

import pytest

import npuconv
from support.asserts import finding
from support.builders import Net
from support.target_files import chip

CODE = "SHP003"
X = (1, 3, 8, 8)
FIRES = [
    lambda: Net(x=X).conv("x", name="conv", auto_pad="SAME_UPPER").model(),
    lambda: Net(x=X).conv("x", auto_pad="VALID").model(),
    (
        lambda: Net(x=X).conv("x", auto_pad="SAME_LOWER").model(),
        chip(auto_pad={"equals": "NOTSET"}),
    ),
]
SILENT = [
    lambda: Net(x=X).conv("x").model(),
    lambda: Net(x=X).conv("x", auto_pad="NOTSET", pads=[1, 1, 1, 1]).model(),
    lambda: Net(x=X).op("MaxPool", kernel_shape=[2, 2], auto_pad="SAME_UPPER").model(),
    (
        lambda: Net(x=X).op("MaxPool", kernel_shape=[2, 2], auto_pad="SAME_LOWER").model(),
        chip("MaxPool", auto_pad=["NOTSET"]),
    ),
    (lambda: Net(x=X).conv("x", auto_pad="VALID").model(), chip(auto_pad=["NOTSET", "VALID"])),
    (lambda: Net(x=X).conv("x", auto_pad="SAME_UPPER").model(), chip(auto_pad="?")),
]


@pytest.mark.parametrize("value", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_it_names_the_attribute(value):
    """The value seen, what the device takes, and who says so."""
    found = finding(Net(x=X).conv("x", name="conv", auto_pad=value).model(), CODE)
    assert found.message == f"auto_pad is {value}; the device takes NOTSET"
    assert (found.node, found.value, found.limit) == ("conv", f"auto_pad={value}", "NOTSET")
    assert "(notes/auto_pad: not supported; converted to pads)" in found.source


def test_the_advice_names_the_flag():
    """Unresolved auto_pad lacks an extent."""
    assert "--input-shape" in finding(FIRES[0](), CODE).fix


def test_it_does_not_say_that_pads_are_written_where_they_are_not():
    """Both pads and auto_pad mean nothing: that alone is said."""
    pads = [1, 1, 1, 1]
    proto = Net(x=X).conv("x", name="conv", auto_pad="SAME_UPPER", pads=pads).model()
    assert {f.code for f in npuconv.check(proto).findings if f.node} == {"SHP004"}
