"""Tests of write-default-attributes."""

from __future__ import annotations

import pytest

from support.asserts import context, read, run_pass, same_numbers
from support.builders import Net

NAME = "write-default-attributes"
ALL = {
    "kernel_shape": [3, 3], "strides": [1, 1], "dilations": [1, 1], "group": 1,
    "pads": [0, 0, 0, 0],
}  # fmt: skip

FIRES = [
    lambda: Net(x=(1, 3, 8, 8)).conv().model(),
    lambda: Net(x=("N", 3, "H", "W")).conv(strides=[2, 2], pads=[1] * 4).model(),
    lambda: Net(x=(1, 4, 8, 8)).conv(op="ConvTranspose").model(),
    lambda: Net(x=(1, 4, 8)).op("AveragePool", kernel_shape=[2]).model(),
    lambda: Net(x=(1, 3, 8, 8)).conv(auto_pad="SAME_UPPER").model(),
]
SILENT = [
    lambda: Net(x=(1, 3, 8, 8)).conv(**ALL).model(),
    lambda: Net(x=(1, 3, 8, 8)).op("Relu").model(),
]


def attributes(build) -> dict:
    """Return the attributes of the only node after the pass."""
    proto = build()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    same_numbers(proto, model)
    return dict(model.nodes()[0].attrs)


def test_a_bare_convolution():
    """All attributes are written out."""
    assert attributes(FIRES[0]) == ALL


def test_what_is_written_stays():
    """Only what is missing is added."""
    assert attributes(FIRES[1]) == ALL | {"strides": [2, 2], "pads": [1] * 4}


def test_a_transposed_convolution():
    """The kernel comes from the weight."""
    assert attributes(FIRES[2]) == ALL


def test_a_pool_has_no_group():
    """A pool gets neither group nor dilations, which old versions lack."""
    assert attributes(FIRES[3]) == {"kernel_shape": [2], "strides": [1], "pads": [0, 0]}


def test_auto_pad_keeps_its_say_over_pads():
    """Pads beside it would contradict it."""
    assert attributes(FIRES[4]) == {k: v for k, v in ALL.items() if k != "pads"} | {
        "auto_pad": "SAME_UPPER"
    }


def test_output_shape_keeps_its_say_over_pads():
    """Output_shape takes precedence over pads, as auto_pad does."""
    net = Net(x=(1, 4, 8, 8)).conv(op="ConvTranspose", output_shape=[9, 9])
    assert "pads" not in attributes(net.model)


def test_weights_computed_at_run_time():
    """The shape of the weights gives the kernel; an open shape gives none."""
    net = Net(x=(1, 3, 8, 8), w=(4, 3, 3, 3)).op("Conv", "x", "w")
    assert attributes(net.model) == ALL
    net = Net(x=(1, 3, 8, 8), w=("M", 3, "kh", "kw")).op("Conv", "x", "w")
    assert run_pass(NAME, read(net.model())) == 0


@pytest.mark.parametrize("build", FIRES[:1])
def test_the_record(build):
    """The record names missing and written attributes."""
    model, ctx = read(build()), context()
    run_pass(NAME, model, ctx)
    (record,) = ctx.rewrites
    assert record.before == "no kernel_shape, strides, dilations, group, pads"
    assert record.after.startswith("kernel_shape=[3, 3], strides=[1, 1]")
    assert record.max_abs_difference == 0.0
