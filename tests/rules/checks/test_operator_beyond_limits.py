"""Tests of operator-beyond-limits."""

from __future__ import annotations

import numpy as np
import pytest

from support.asserts import builtin, finding, findings
from support.builders import Net
from support.target_files import chip

CODE = "OPS007"
X = (1, 4, 12, 12)
HW, CHANNELS = [0, 0, 1, 1, 0, 0, 1, 1], [0, 1, 0, 0, 0, 1, 0, 0]


def max_pool(**attrs):
    attrs = {"kernel_shape": [3, 3], **attrs}
    return Net(x=X).op("MaxPool", name="pool", **attrs).model()


def average_pool(**attrs):
    return Net(x=X).op("AveragePool", kernel_shape=[3, 3], name="pool", **attrs).model()


def pad(amounts=HW, **attrs):
    return Net(x=X).pad(amounts, name="pad", **attrs).model()


def to_space(blocksize=2):
    return Net(x=X).op("DepthToSpace", blocksize=blocksize, name="up").model()


def resize(mode="nearest", **attrs):
    net = Net(x=X)
    inputs = [net.constant(np.zeros(0, np.float32)), net.constant(np.float32([1, 1, 2, 2]))]
    return net.op("Resize", "x", *inputs, mode=mode, **attrs).model()


def every_second(axis):
    net = Net(x=X)
    inputs = [net.constant(np.asarray([n])) for n in (0, 4, axis, 2)]
    return net.op("Slice", "x", *inputs).model()


def add():
    return Net(x=X, y=X).op("Add", "x", "y", name="add").model()


FLOOR = chip("MaxPool", ceil_mode={"equals": False})
COUNTED = chip("AveragePool", count_include_pad={"equals": True})
PADDED = {"if": "pad_max > 0", "then": "count_include_pad"}
CONSTANT = chip("Pad", pad_mode=["constant"])
IMAGES = chip("Pad", pad_outside_hw={"equals": 0})
NEAREST = chip("Resize", interpolation=["nearest"])
CORNERS = chip("Resize", coordinate_mode=["align_corners"])
DENSE = chip("Slice", slice_step_min={"equals": 1})
SPATIAL = chip("Slice", slice_step_outside_hw={"equals": 1})
TWO = chip("DepthToSpace", blocksize={"equals": 2})

FIRES = [
    (lambda: max_pool(ceil_mode=1), FLOOR),
    (average_pool, COUNTED),
    (lambda: pad(mode="reflect"), CONSTANT),
    (lambda: pad(CHANNELS), IMAGES),
    (lambda: Net(x=(1, 9, 2, 2)).op("DepthToSpace", blocksize=3).model(), TWO),
    (lambda: resize("linear"), NEAREST),
    (resize, CORNERS),
    (lambda: every_second(2), DENSE),
    (lambda: every_second(1), SPATIAL),
    (max_pool, chip("MaxPool", kernel_h={"max": 2})),
    (add, chip("Add", in_c={"max": 3})),
    (
        lambda: average_pool(pads=[1, 1, 1, 1]),
        chip("AveragePool", require=[PADDED]),
    ),
    (max_pool, chip("MaxPool", kernel_h={"max": 2}, also={"unlisted_operators": "host"})),
]
SILENT = [
    (resize, NEAREST),
    (lambda: every_second(2), SPATIAL),
    (max_pool, FLOOR),
    (lambda: average_pool(count_include_pad=1), COUNTED),
    (pad, CONSTANT),
    (pad, IMAGES),
    (to_space, TWO),
    (average_pool, chip("AveragePool", require=[PADDED])),
    # of the written model, not of this one
    (add, chip("Add", dtype={"equals": "int8"})),
    (add, chip("Add", in_c="?")),
    (max_pool, chip("MaxPool", kernel_h={"max": 2}, also={"unlisted_operators": "error"})),
    # convolutions have rules of their own
    (lambda: Net(x=X).conv("x", (4, 4, 3, 3)).model(), chip(kernel_h={"max": 2})),
    (lambda: Net(x=None).op("Add", "x", "x").model(), chip("Add", in_c={"max": 3})),
    max_pool,
]


def test_it_names_value_limit_and_source():
    """The message says where the node runs instead."""
    target = chip("MaxPool", kernel_h={"range": [1, 2]})
    found = finding(max_pool(), CODE, target)
    assert found.message == "kernel_h is 3; the device takes 1..2: it runs on the host"
    assert (found.severity, found.node) == ("note", "pool")
    assert (found.value, found.limit) == ("kernel_h=3", "1..2")
    assert found.source.startswith("chip:6 operators.MaxPool.limits.kernel_h")


def test_a_relation_is_shown_with_its_numbers():
    """Relations are shown as for convolutions."""
    target = chip("MaxPool", require=[{"then": "stride_h <= kernel_h"}])
    found = finding(max_pool(strides=[4, 4]), CODE, target)
    assert found.message.startswith("stride_h <= kernel_h (kernel_h=3, stride_h=4) does not hold:")
    assert found.limit == "stride_h <= kernel_h"


def test_every_limit_is_a_finding():
    """One does not hide the next."""
    target = chip("MaxPool", kernel_h={"max": 2}, kernel_w={"max": 1})
    assert len(findings(max_pool(), CODE, target)) == 2


@pytest.mark.parametrize(("amount", "fires"), [([0, 0, 1, 1, 0, 0, 1, 1], False), (CHANNELS, True)])
def test_a_real_chip_pads_images_only(amount, fires):
    """A target that comes with npuconv."""
    assert bool(findings(pad(amount), CODE, builtin("horizon-x3"))) is fires
