"""Tests of host-dominates."""

from __future__ import annotations

import npuconv
from support.asserts import finding
from support.builders import Net
from support.target_files import chip

CODE = "OPS011"


def tail(convolutions, others, op="Sin"):
    """Convolutions of the device, then operators of the host."""
    net = Net(x=(1, 4, 8, 8))
    for _ in range(convolutions):
        net.conv(net.last, (4, 4, 1, 1))
    for _ in range(others):
        net.op(op)
    return net.model()


FIRES = [lambda: tail(1, 20), lambda: tail(6, 20)]
SILENT = [
    lambda: tail(1, 19),
    lambda: tail(7, 20),  # a quarter
    lambda: tail(0, 20),  # nothing-on-device says it
    (lambda: tail(1, 20, "Sigmoid"), chip(also={"operators": {"Conv": {}, "Sigmoid": {}}})),
]


def test_it_names_nodes_and_operators():
    """Amber, with the numbers as the reason; the exit code stays."""
    found = finding(tail(2, 30), CODE)
    lack = "target npu-int8 lacks Sin (30 nodes); qnn-htp supports it"
    assert found.message == f"2 of 32 nodes run on the device: {lack}"
    report = npuconv.check(tail(2, 30), verify=False)
    assert (report.is_doubtful, report.summary.exit_code) == (True, 0)
    assert ", 2 of 32 nodes on it" in report.summary.headline
