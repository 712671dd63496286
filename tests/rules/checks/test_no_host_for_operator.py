"""Tests of no-host-for-operator."""

from __future__ import annotations

from support.asserts import finding, findings
from support.builders import Net
from support.target_files import chip

CODE = "OPS008"
X = (1, 4, 12, 12)
ALONE = {"unlisted_operators": "error"}


def pool(stride=1):
    net = Net(x=X)
    return net.op("MaxPool", kernel_shape=[3, 3], strides=[stride] * 2, name="pool").model()


SMALL = chip("MaxPool", kernel_h={"max": 2}, also=ALONE)
FIRES = [
    (pool, SMALL),
    (lambda: pool(4), chip("MaxPool", require=[{"then": "stride_h <= kernel_h"}], also=ALONE)),
]
SILENT = [
    (pool, chip("MaxPool", kernel_h={"max": 3}, also=ALONE)),
    (pool, chip("MaxPool", kernel_h={"max": 2})),
    (pool, chip("MaxPool", kernel_h={"max": 2}, also={"unlisted_operators": "host"})),
    (pool, chip(also=ALONE)),
    (lambda: Net(x=X).conv("x", (4, 4, 3, 3)).model(), chip(kernel_h={"max": 2}, also=ALONE)),
    pool,
]


def test_it_is_an_error():
    """No other processor could run the node."""
    found = finding(pool(), CODE, SMALL)
    assert found.message == "kernel_h is 3; the device takes at most 2, and target chip has no host"
    assert (found.severity, found.node, found.limit) == ("error", "pool", "at most 2")
    assert found.source.startswith("chip:6 operators.MaxPool.limits.kernel_h")


def test_every_limit_is_a_finding():
    """One does not hide the next."""
    target = chip("MaxPool", kernel_h={"max": 2}, kernel_w={"max": 1}, also=ALONE)
    assert len(findings(pool(), CODE, target)) == 2
