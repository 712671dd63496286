"""Tests of group-unsupported."""

from __future__ import annotations

import pytest

from support.asserts import finding, findings
from support.builders import Net
from support.target_files import chip

CODE = "SHP002"


def conv(group: int, outputs: int = 8):
    weight = (outputs, 8 // group, 3, 3)
    return Net(x=(1, 8, 9, 9)).conv("x", weight, group=group, name="conv").model()


SINGLE = chip(channel_multiplier={"equals": 1})
FIRES = [
    lambda: conv(2),
    lambda: conv(4),
    (lambda: conv(8, 16), SINGLE),
    (lambda: conv(8), chip(mode=["plain"])),
    (lambda: conv(8), chip(group={"equals": 1})),
]
SILENT = [
    lambda: conv(1),
    lambda: conv(8),
    lambda: conv(8, 16),
    (lambda: conv(8), SINGLE),
    (lambda: conv(1, 16), SINGLE),
    (lambda: conv(4), chip(mode=["plain", "grouped"])),
]


@pytest.mark.parametrize("group", [2, 4])
def test_what_lies_between_is_refused(group):
    """One group, or one for each of the C channels."""
    found = finding(conv(group), CODE)
    assert found.message == f"group is {group}; the device takes 1 or C (=8)"
    assert (found.node, found.value, found.limit) == ("conv", f"group={group}", "1 or C (=8)")
    assert "(notes/group: only 1 or C)" in found.source


@pytest.mark.parametrize("group", [1, 8])
def test_both_ends_are_taken(group):
    """A plain and a depthwise convolution pass with any number of outputs."""
    assert not findings(conv(group, 16), CODE)


def test_the_channel_multiplier_of_a_depthwise_convolution():
    """Outputs per input channel; a plain convolution has none."""
    found = finding(conv(8, 24), CODE, SINGLE)
    assert found.message == "channel_multiplier is 3; the device takes 1"
    assert not findings(conv(1, 24), CODE, SINGLE)


@pytest.mark.parametrize(("group", "mode"), [(1, "plain"), (2, "grouped"), (8, "depthwise")])
def test_the_mode_is_what_group_implies(group, mode):
    """Modes have the names of the target file."""
    assert finding(conv(group), CODE, chip(mode=["transposed"])).value == f"mode={mode}"


def test_one_group_of_one_channel_is_plain():
    """1 is C there; nothing is gained by calling it depthwise."""
    proto = Net(x=(1, 1, 8, 8)).conv("x", (4, 1, 3, 3)).model()
    assert finding(proto, CODE, chip(mode=["depthwise"])).value == "mode=plain"
