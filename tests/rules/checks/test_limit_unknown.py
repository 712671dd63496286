"""Tests of limit-unknown."""

from __future__ import annotations

import pytest

import npuconv
from support.asserts import finding, findings
from support.builders import Net
from support.target_files import chip

CODE = "OPS005"
X = (1, 3, 32, 32)


def kernels(*sizes: int):
    net = Net(x=X)
    for size in sizes:
        net.conv("", (3, 3, size, size), name=f"conv{size}")
    return net.model()


KERNEL = chip(kernel_h="?")
FIRES = [
    lambda: kernels(3),
    (lambda: kernels(3), KERNEL),
    (lambda: kernels(3), chip(C="?")),
    (lambda: Net(x=("N", 3, 8, 8)).conv("x").model(), chip(in_n="?")),
    (lambda: kernels(3), chip(bias={"limit": "?", "assume": [True, False]})),
]
SILENT = [
    (lambda: kernels(3), chip(kernel_h={"max": 1})),
    (lambda: kernels(3), chip("MaxPool", kernel_h="?")),
    (lambda: kernels(3), chip(dtype="?", weight_dtype="?", bias_dtype="?")),
    lambda: Net(x=X).op("Relu").model(),
]


def test_it_is_neither_yes_nor_no():
    """A warning of status unknown, with the values the model needs."""
    found = finding(kernels(5, 3, 5), CODE, KERNEL)
    assert found.message == (
        "the limit of Conv.kernel_h is not known; the model needs 3, 5 (3 nodes)"
    )
    assert (found.severity, found.status) == ("warning", "unknown")
    assert (found.value, found.limit) == ("3, 5", "?")
    assert found.source == "chip:6 operators.Conv.limits.kernel_h"


def test_it_names_the_node_with_the_largest():
    """The largest value decides."""
    assert finding(kernels(3, 7, 5), CODE, KERNEL).node == "conv7"


def test_many_values_become_a_range():
    """Up to six are named one by one."""
    assert finding(kernels(1, 2, 3, 4, 5, 6), CODE, KERNEL).value == "1, 2, 3, 4, 5, 6"
    assert finding(kernels(1, 2, 3, 4, 5, 6, 7), CODE, KERNEL).value == "1..7"


@pytest.mark.parametrize("fact", ["in_n", "in_h", "in_w", "out_h"])
def test_an_extent_that_the_model_leaves_open(fact):
    """An open extent needs "any"; with fixed extents of other nodes both are listed."""
    dynamic = Net(x=("N", 3, "H", "W")).conv("x").model()
    assert finding(dynamic, CODE, chip(**{fact: "?"})).value == "any"
    net = Net(x=(1, 3, 8, 8), y=("N", 3, "H", "W")).conv("x").conv("y")
    assert finding(net.output().model(), CODE, chip(in_h="?")).value == "8, any"


def test_a_tensor_of_unknown_shape_leaves_all_open():
    """The weights tell that it has a height."""
    net = Net(x=X).op("Mystery", domain="org.example").conv("", (4, 3, 3, 3))
    assert finding(net.model(), CODE, chip(in_h="?")).value == "any"


def test_a_dynamic_model_lists_the_limits_of_a_fixed_one():
    """A dynamic model must not look safer in the report."""
    shapes = ((1, 3, 8, 8), ("N", 3, "H", "W"))
    reports = [npuconv.check(Net(x=shape).conv("x").model()) for shape in shapes]
    fixed, dynamic = ([one.limit for one in r.unknown_limits] for r in reports)
    assert dynamic == fixed


def test_truth_values_are_written_as_in_the_target_file():
    """Truth values are never written as a range."""
    proto = Net(x=X).conv("x", (3, 3, 3, 3)).conv("", (3, 3, 3, 3), bias=False).model()
    assert finding(proto, CODE, chip(bias="?")).value == "false, true"


def test_words_are_listed():
    """Words are listed in order, once each."""
    net = Net(x=X)
    for auto_pad in ("VALID", "SAME_UPPER", "VALID"):
        net.conv("", (3, 3, 3, 3), auto_pad=auto_pad)
    assert finding(net.model(), CODE, chip(auto_pad="?")).value == "SAME_UPPER, VALID"


def test_every_limit_is_a_finding():
    """The built-in target marks many; each is a question of its own."""
    messages = " ".join(f.message for f in findings(kernels(3), CODE))
    for fact in ("kernel_h", "stride_w", "pad_top", "dilation_h", "in_c", "weight_n", "bias"):
        assert f"Conv.{fact} is" in messages
    assert "bias_dtype" not in messages


def test_an_unknown_limit_of_a_mode():
    """Only convolutions of that mode need it."""
    target = chip(kernel_h={"max": 3}, modes={"depthwise": {"kernel_h": "?"}})
    proto = Net(x=X).conv("x", (3, 1, 5, 5), group=3).conv("", (3, 3, 3, 3)).model()
    assert "needs 5 (1 node)" in finding(proto, CODE, target).message
