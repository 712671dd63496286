"""Tests of kernel-out-of-range."""

from __future__ import annotations

import pytest

from support.asserts import finding, findings
from support.builders import Net
from support.target_files import chip

CODE = "SHP006"
MEASURED = {
    "kernel_h": 3, "kernel_w": 5, "dilated_kernel_h": 5, "dilated_kernel_w": 13,
    "kernel_area": 15, "kernel_volume": 60,
}  # fmt: skip


def conv():
    net = Net(x=(1, 4, 20, 20))
    return net.conv("x", (6, 4, 3, 5), dilations=[2, 3], name="conv").model()


def pool():
    return Net(x=(1, 4, 20, 20)).op("MaxPool", kernel_shape=[3, 9]).model()


DEPTHWISE = chip(kernel_h={"max": 7}, modes={"depthwise": {"kernel_h": {"max": 2}}})
FIRES = [(conv, chip(**{fact: {"max": value - 1}})) for fact, value in MEASURED.items()]
SILENT = [(conv, chip(**{fact: {"max": value}})) for fact, value in MEASURED.items()]
SILENT += [conv, pool, (conv, DEPTHWISE), (pool, chip("MaxPool", kernel_w={"max": 8}))]


@pytest.mark.parametrize("fact", MEASURED)
def test_every_measure_has_its_limit(fact):
    """The value seen, and the range it is beyond."""
    value = MEASURED[fact]
    found = finding(conv(), CODE, chip(**{fact: {"range": [1, value - 1]}}))
    assert found.message == f"{fact} is {value}; the device takes 1..{value - 1}"
    assert (found.node, found.value) == ("conv", f"{fact}={value}")


def test_a_mode_has_limits_of_its_own():
    """The limit of the mode replaces the general one."""
    proto = Net(x=(1, 4, 8, 8)).conv("x", (4, 1, 3, 3), group=4).model()
    assert finding(proto, CODE, DEPTHWISE).limit == "at most 2"


def test_a_limit_that_is_not_known_is_not_this_rule():
    """Another one says what the model needs of it."""
    assert not findings(conv(), CODE)
