"""Tests of relation-violated."""

from __future__ import annotations

from support.asserts import finding, findings
from support.builders import Net
from support.target_files import chip

CODE = "SHP011"
X = (1, 3, 12, 12)
DILATED = {"if": "dilation_h > 1", "then": "stride_h == 1", "why": "it cannot skip"}
ALWAYS = {"then": "pad_top == pad_bottom"}
CHIP = chip(require=[DILATED, ALWAYS])


def conv(x=X, **attrs):
    return Net(x=x).conv("x", name="conv", **attrs).model()


FIRES = [
    (lambda: conv(dilations=[2, 2], strides=[2, 2]), CHIP),
    (lambda: conv(pads=[0, 0, 1, 0]), CHIP),
    (conv, chip(require=[{"then": "C % 4 == 0"}])),
]
SILENT = [
    (lambda: conv(dilations=[2, 2]), CHIP),
    (lambda: conv(strides=[2, 2]), CHIP),
    (lambda: conv(("N", 3, 12, 12)), chip(require=[{"then": "in_n == 1"}])),
    (lambda: Net(x=X).op("MaxPool", kernel_shape=[2, 2], pads=[0, 0, 1, 0]).model(), CHIP),
    (lambda: Net(x=X).op("MaxPool", kernel_shape=[2, 2]).model(), chip("MaxPool")),
    (
        lambda: Net(x=X).op("MaxPool", kernel_shape=[2, 2], pads=[0, 0, 1, 0]).model(),
        chip("MaxPool", require=[ALWAYS]),
    ),
    (lambda: conv(strides=[2]), CHIP),
    lambda: conv(dilations=[2, 2], strides=[2, 2]),
]


def test_it_shows_the_relation_and_the_numbers():
    """Both sides, and the line of the target file."""
    found = finding(conv(dilations=[2, 1], strides=[3, 1]), CODE, CHIP)
    assert found.message == (
        "stride_h == 1 when dilation_h > 1 (dilation_h=2, stride_h=3) does not hold"
    )
    assert (found.node, found.limit) == ("conv", "stride_h == 1 when dilation_h > 1")
    assert found.source.startswith("chip:")
    assert found.source.endswith("(it cannot skip)")


def test_every_relation_is_a_finding():
    """One that fails does not hide the next."""
    proto = conv(dilations=[2, 2], strides=[2, 2], pads=[1, 0, 0, 0])
    assert len(findings(proto, CODE, CHIP)) == 2


def test_an_unknown_fact_is_not_judged():
    """A symbolic batch may turn out to be right."""
    target = chip(require=[{"then": "in_n == 1"}])
    assert not findings(conv(("N", 3, 12, 12)), CODE, target)
    assert findings(conv((2, 3, 12, 12)), CODE, target)
