"""Tests of extent-not-judged."""

from __future__ import annotations

import pytest

from support.asserts import finding, findings
from support.builders import Net
from support.target_files import chip

CODE = "SHP017"


def conv(*extents: int | str):
    net = Net(x=extents or ("N", 3, "H", "W")).conv("x", (4, 3, 3, 3), name="first")
    return net.op("Relu").conv("", (4, 4, 3, 3), name="second").model()


FIRES = [
    (conv, chip(in_n={"equals": 1})),
    (conv, chip(in_h={"range": [1, 100]})),
    (conv, chip(out_w={"max": 64})),
    (lambda: conv("N", 3, 8, 8), chip(in_n={"equals": 1})),
]
SILENT = [
    conv,
    (conv, chip(in_h="?")),
    (lambda: conv(1, 3, 8, 8), chip(in_n={"equals": 1}, in_h={"max": 100})),
    (conv, chip("MaxPool", in_h={"max": 100})),
]


def test_it_names_the_limit_and_the_flag():
    """One finding, however many nodes; the first of them, and what to give."""
    found = finding(conv(), CODE, chip(in_h={"range": [1, 100]}))
    assert found.message == (
        "the device takes 1..100 for in_h, but the model leaves that open (2 nodes)"
    )
    assert (found.node, found.value, found.limit) == ("first", "in_h", "1..100")
    assert found.fix == "give --input-shape x=?,3,?,? with numbers for every ?"


@pytest.mark.parametrize("fact", ["in_n", "in_h", "in_w", "out_n", "out_h", "out_w"])
def test_every_extent(fact):
    """Batch, height and width of input and output."""
    assert len(findings(conv(), CODE, chip(**{fact: {"max": 9}}))) == 1
