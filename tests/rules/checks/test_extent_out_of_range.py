"""Tests of extent-out-of-range."""

from __future__ import annotations

import pytest

from support.asserts import finding, findings
from support.builders import Net
from support.target_files import chip

CODE = "SHP010"
MEASURED = {
    "in_n": 2, "in_c": 6, "in_h": 8, "in_w": 10, "out_n": 2, "out_c": 12, "out_h": 6, "out_w": 9,
    "weight_n": 12, "weight_c": 3, "weight_h": 3, "weight_w": 2, "in_c_per_group": 3,
    "out_c_per_group": 6, "C": 6,
}  # fmt: skip


def conv(n: int | str = 2):
    return Net(x=(n, 6, 8, 10)).conv("x", (12, 3, 3, 2), group=2, name="conv").model()


FIRES = [(conv, chip(**{fact: {"max": value - 1}})) for fact, value in MEASURED.items()]
FIRES += [(conv, chip(in_c={"multiple_of": 4})), (conv, chip(out_w={"max": "weight_w"}))]
SILENT = [(conv, chip(**{fact: {"equals": value}})) for fact, value in MEASURED.items()]
SILENT += [
    (conv, chip(in_c={"multiple_of": 3})),
    (lambda: conv("N"), chip(in_n={"equals": 1})),
    conv,
]


@pytest.mark.parametrize("fact", MEASURED)
def test_every_extent_is_measured(fact):
    """The value seen, and the limit just below it."""
    value = MEASURED[fact]
    found = finding(conv(), CODE, chip(**{fact: {"max": value - 1}}))
    assert found.message == f"{fact} is {value}; the device takes at most {value - 1}"
    assert (found.node, found.value) == ("conv", f"{fact}={value}")


def test_channels_come_in_blocks():
    """The finding names the multiple."""
    assert finding(conv(), CODE, chip(out_c={"multiple_of": 8})).limit == "a multiple of 8"


def test_an_unknown_extent_is_not_judged():
    """A symbolic batch may turn out to be right."""
    assert not findings(conv("N"), CODE, chip(in_n={"max": 1}, out_n={"max": 1}))
