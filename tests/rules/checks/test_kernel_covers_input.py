"""Tests of kernel-covers-input."""

from __future__ import annotations

import npuconv
from support.asserts import finding
from support.builders import Net
from support.target_files import chip

CODE = "SHP019"
X = (1, 3, 8, 8)


def depthwise(kernel: int = 8, x=X):
    return Net(x=x).conv("x", (3, 1, kernel, kernel), group=3, name="pool").model()


FIRES = [depthwise, (depthwise, chip(kernel_w="?"))]
SILENT = [
    lambda: depthwise(3),
    lambda: Net(x=X).conv("x", (4, 3, 8, 8)).model(),
    lambda: depthwise(1, (1, 3, 1, 1)),
    lambda: Net(x=X).conv("x", (3, 3, 7, 7)).conv("", (3, 1, 2, 2), group=3).model(),
    lambda: depthwise(8, (1, 3, "H", "W")),
    (depthwise, chip(kernel_h={"max": 9}, kernel_w={"max": 9})),
    lambda: Net(x=X).op("GlobalAveragePool").model(),
]


def test_it_names_kernel_and_weights():
    """A warning of status unknown, as of every limit that nobody has written down."""
    found = finding(depthwise(), CODE)
    assert found.message == (
        "its kernel is 8x8, the whole input, with 192 B of int8 weights; "
        "the limit of kernel_h and kernel_w is not known"
    )
    assert (found.node, found.value, found.limit) == ("pool", "8x8", "?")
    assert (found.severity, found.status) == ("warning", "unknown")
    assert finding(depthwise(), CODE, chip(kernel_w="?")).message.endswith(
        "of kernel_w is not known"
    )


def test_a_pool_that_becomes_such_a_convolution():
    """check says so of the user's own node, and convert as check does."""
    net = Net(x=(1, 3, 80, 80)).conv("x", (120, 3, 1, 1))
    proto = net.op("GlobalAveragePool", name="mean").model()
    reports = [npuconv.check(proto), npuconv.convert(proto, format="float").report]
    for report in reports:
        (found,) = (f for f in report.findings if f.code == CODE)
        assert found.node == "mean"
        assert "80x80, the whole input, with 750.0 KiB of int8 weights" in found.message
