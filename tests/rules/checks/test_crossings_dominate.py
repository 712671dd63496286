"""Tests of crossings-dominate."""

from __future__ import annotations

import npuconv
from support.asserts import finding, findings
from support.builders import Net
from support.target_files import chip

CODE = "OPS009"
X = (1, 4, 16, 16)


def chain(times, op="Sigmoid", shape=X):
    """Convolutions with an operator of the host between each and the next."""
    net = Net(x=shape).conv("x", (4, 4, 1, 1))
    for _ in range(times):
        net.op(op).conv("", (4, 4, 1, 1))
    return net.model()


FIRES = [lambda: chain(6), lambda: chain(6, shape=(1, 4, "h", 16))]
SILENT = [
    lambda: chain(4),
    (lambda: chain(6), chip(also={"operators": {"Conv": {}, "Sigmoid": {}}})),
    # what is in between is little beside input and output
    lambda: Net(x=X).conv("x", (4, 4, 1, 1)).op("Sigmoid").conv("", (4, 4, 1, 1)).model(),
]


def test_it_names_amount_causes_and_targets_that_list_them():
    """Two crossings for each operator; the built-in targets are asked."""
    found = finding(chain(6), CODE)
    assert found.message == (
        "12 of 14 crossings, 12.0 KiB per inference because the host computes between layers of "
        "the device; caused by Sigmoid (6); listed by: ethos-u55, horizon-x3, rknn"
    )
    assert (found.severity, found.value, found.node) == ("note", "12 of 14 crossings, 12.0 KiB", "")


def test_bytes_that_are_not_known_are_not_shown():
    """Count the tensors then."""
    assert finding(chain(6, shape=(1, 4, "h", 16)), CODE).value == "12 of 14 crossings"


def test_the_first_cause_is_named_where_no_target_lists_all():
    """An operator that only one of them has, and one that none has."""
    net = Net(x=X).conv("x", (4, 4, 1, 1))
    for op in (*["Sigmoid"] * 5, "Softsign"):
        net.op(op).conv("", (4, 4, 1, 1))
    text = finding(net.model(), CODE).message
    assert "caused by Sigmoid (5), Softsign (1); Sigmoid is listed by: " in text
    assert finding(chain(6, "Softsign"), CODE).message.endswith("caused by Softsign (6)")


def test_the_headline_says_it():
    """After the convolutions and the unknown limits."""
    report = npuconv.check(chain(6), verify=False)
    assert ", 12 of 14 crossings, 12.0 KiB, because of host nodes" in report.summary.headline
    assert "crossings" not in npuconv.check(chain(1), verify=False).summary.headline
    assert not findings(chain(1), CODE)
