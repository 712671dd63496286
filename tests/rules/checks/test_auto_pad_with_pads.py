"""Tests of auto-pad-with-pads."""

from __future__ import annotations

import pytest

import npuconv
from npuconv.errors import UnsupportedModelError
from support.asserts import finding
from support.builders import Net

CODE = "SHP004"
X = (1, 3, 8, 8)
FIRES = [
    lambda: Net(x=X).conv("x", name="conv", auto_pad="SAME_UPPER", pads=[1, 0, 1, 2]).model(),
    lambda: Net(x=X).conv("x", auto_pad="VALID", pads=[0, 0, 0, 1]).model(),
    lambda: (
        Net(x=X)
        .op("MaxPool", kernel_shape=[2, 2], auto_pad="SAME_LOWER", pads=[1, 1, 0, 0])
        .model()
    ),
]
SILENT = [
    lambda: Net(x=X).conv("x", auto_pad="SAME_UPPER").model(),
    lambda: Net(x=X).conv("x", auto_pad="SAME_UPPER", pads=[0, 0, 0, 0]).model(),
    lambda: Net(x=X).conv("x", auto_pad="NOTSET", pads=[1, 1, 1, 1]).model(),
    lambda: Net(x=X).conv("x", pads=[1, 1, 1, 1]).model(),
    lambda: Net(x=X).op("Relu").model(),
]


def test_it_names_both_attributes():
    """Pads in ONNX's order, so that they can be searched for."""
    found = finding(FIRES[0](), CODE)
    assert found.message == "auto_pad is SAME_UPPER and pads is [1, 0, 1, 2]; ONNX forbids both"
    assert found.value == "auto_pad=SAME_UPPER, pads=[1, 0, 1, 2]"
    assert (found.node, found.limit) == ("conv", "one of the two")
    assert found.source == "ONNX Conv-11, attribute auto_pad"


def test_pools_the_target_does_not_list_are_reported_too():
    """The model is wrong on any device."""
    assert finding(FIRES[2](), CODE).op_type == "MaxPool"


def test_no_option_ignores_it():
    """No runtime takes such a model: check and convert refuse it in the same words."""
    options = {"ignore": ("SHP003", "SHP004"), "severity": {"SHP004": "note"}}
    checked = npuconv.check(FIRES[0](), **options)
    with pytest.raises(UnsupportedModelError) as caught:
        npuconv.convert(FIRES[0](), **options)
    assert checked.summary.verdict == "refused"
    assert checked.summary == caught.value.report.summary
    assert checked.summary.headline == "1 error: auto-pad-with-pads x 1"
