"""Tests of stride-out-of-range."""

from __future__ import annotations

import pytest

from support.asserts import finding, findings
from support.builders import Net
from support.target_files import chip

CODE = "SHP007"
X = (1, 3, 12, 12)


def conv(*strides: int):
    return Net(x=X).conv("x", name="conv", strides=list(strides)).model()


SQUARE = chip(stride_w={"equals": "stride_h"})
FIRES = [
    (lambda: conv(3, 1), chip(stride_h=[1, 2, 4])),
    (lambda: conv(1, 3), chip(stride_w={"max": 2})),
    (lambda: conv(1, 2), SQUARE),
]
SILENT = [
    (
        lambda: Net(x=X).op("MaxPool", kernel_shape=[2, 2], strides=[3, 3]).model(),
        chip("MaxPool", stride_h={"max": 2}),
    ),
    (lambda: conv(2, 3), chip(stride_h=[1, 2, 4])),
    (lambda: conv(2, 2), SQUARE),
    (lambda: Net(x=X).conv("x").model(), chip(stride_h={"equals": 1}, stride_w={"equals": 1})),
    lambda: conv(7, 7),
]


@pytest.mark.parametrize(
    ("target", "value", "limit"),
    [
        (chip(stride_h=[1, 2, 4]), "stride_h=3", "1, 2 or 4"),
        (chip(stride_w={"min": 6}), "stride_w=5", "at least 6"),
        (SQUARE, "stride_w=5", "stride_h (=3)"),
    ],
)
def test_it_names_value_and_limit(target, value, limit):
    """Value and limit are in words of the target file."""
    found = finding(conv(3, 5), CODE, target)
    assert (found.node, found.value, found.limit) == ("conv", value, limit)
    assert found.message == f"{value.replace('=', ' is ')}; the device takes {limit}"


def test_a_1d_convolution_has_a_width_only():
    """Its one axis is the last one of the device."""
    proto = Net(x=(1, 3, 9)).conv("x", (4, 3, 3), strides=[3]).model()
    target = chip(stride_h={"max": 2}, stride_w={"max": 2})
    assert [f.value for f in findings(proto, CODE, target)] == ["stride_w=3"]
