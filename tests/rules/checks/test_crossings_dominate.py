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
        "12 of 14 crossings are between layers of the device: target npu-int8 lacks Sigmoid "
        "(6 nodes); ethos-u55, horizon-x3, qnn-htp, rknn support it; 12.0 KiB per inference"
    )
    assert (found.severity, found.value, found.node) == ("warning", "12 of 14 crossings", "")


def test_bytes_that_are_not_known_are_not_shown():
    """Count the tensors then."""
    assert "KiB" not in finding(chain(6, shape=(1, 4, "h", 16)), CODE).message


def test_the_first_cause_is_named_where_no_target_lists_all():
    """An operator that only one of them has, and one that none has."""
    net = Net(x=X).conv("x", (4, 4, 1, 1))
    for op in (*["Sigmoid"] * 5, "Softsign"):
        net.op(op).conv("", (4, 4, 1, 1))
    text = finding(net.model(), CODE).message
    targets = "ethos-u55, horizon-x3, qnn-htp, rknn"
    assert f"lacks Sigmoid (5 nodes), Softsign (1 node); {targets} support" in text
    assert "support Sigmoid; " in text
    assert "lacks Softsign (6 nodes); 12.0 KiB" in finding(chain(6, "Softsign"), CODE).message


def test_a_limit_is_named_where_the_target_lists_the_operator():
    """No other target is recommended for what this one has."""
    limits = {"rank": {"max": 3}}
    operators = {"Conv": {}, "Sigmoid": {"limits": limits}}
    text = finding(chain(6), CODE, chip(also={"operators": operators})).message
    assert "Sigmoid (6 nodes) on the host: rank is 4, the device takes at most 3" in text
    assert "support" not in text


def test_the_verdict_is_amber():
    """The reason stands in the headline and on the first line; the exit code stays."""
    report = npuconv.check(chain(6), verify=False)
    assert report.is_doubtful
    assert report.summary.exit_code == 0
    assert ", 12 of 14 crossings between its layers" in report.summary.headline
    assert not npuconv.check(chain(1), verify=False).is_doubtful
    assert not findings(chain(1), CODE)
