"""Tests of dilation-out-of-range."""

from __future__ import annotations

import pytest

from support.asserts import finding, findings
from support.builders import Net
from support.target_files import chip

CODE = "SHP008"
X = (1, 3, 12, 12)


def conv(*dilations: int):
    return Net(x=X).conv("x", name="conv", dilations=list(dilations)).model()


FIRES = [
    (lambda: conv(3, 1), chip(dilation_h={"max": 2})),
    (lambda: conv(1, 3), chip(dilation_w={"power_of_two": True})),
    (lambda: conv(2, 1), chip(dilation_h={"equals": "dilation_w"})),
]
SILENT = [
    (lambda: conv(2, 3), chip(dilation_h={"max": 2})),
    (lambda: conv(1, 4), chip(dilation_w={"power_of_two": True})),
    (lambda: Net(x=X).conv("x").model(), chip(dilation_h={"equals": 1}, dilation_w={"equals": 1})),
    lambda: conv(5, 5),
]


@pytest.mark.parametrize(
    ("target", "value", "limit"),
    [
        (chip(dilation_h={"max": 2}), "dilation_h=3", "at most 2"),
        (chip(dilation_w={"power_of_two": True}), "dilation_w=5", "a power of two"),
        (chip(dilation_h={"equals": "dilation_w"}), "dilation_h=3", "dilation_w (=5)"),
    ],
)
def test_it_names_value_and_limit(target, value, limit):
    """Value and limit are in words of the target file."""
    found = finding(conv(3, 5), CODE, target)
    assert (found.node, found.value, found.limit) == ("conv", value, limit)
    assert found.message == f"{value.replace('=', ' is ')}; the device takes {limit}"


def test_both_axes_are_two_findings():
    """Height and width have limits of their own."""
    target = chip(dilation_h={"max": 2}, dilation_w={"max": 2})
    assert len(findings(conv(3, 3), CODE, target)) == 2
