"""Tests of operator-beyond-limits."""

from __future__ import annotations

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


def add():
    return Net(x=X, y=X).op("Add", "x", "y", name="add").model()


def slice_by(step):
    net = Net(x=X)
    return net.op("Slice", "x", *(net.constant([value]) for value in (0, 8, 2, step))).model()


def double(mode):
    return with_constant("Resize", [1.0, 1.0, 2.0, 2.0], "", mode=mode)


FLOOR = chip("MaxPool", ceil_mode={"equals": False})
COUNTED = chip("AveragePool", count_include_pad={"equals": True})
PADDED = {"if": "pad_max > 0", "then": "count_include_pad"}
CONSTANT = chip("Pad", pad_mode=["constant"])
IMAGES = chip("Pad", pad_outside_hw={"equals": 0})
TWO = chip("DepthToSpace", blocksize={"equals": 2})


def one(op, **attrs):
    return lambda: Net(x=X).op(op, name="one", **attrs).model()


def with_constant(op, values, *before, **attrs):
    net = Net(x=X)
    return lambda: net.op(op, "x", *before, net.constant(values), **attrs).model()


FIRES = [
    (one("Softmax", axis=2), chip("Softmax", axis=[1, 3])),
    (one("ReduceMean", axes=[1]), chip("ReduceMean", axes={"equals": "2,3"})),
    (one("Transpose", perm=[1, 0, 2, 3]), chip("Transpose", perm=["0,2,3,1"])),
    (one("Transpose", perm=[1, 0, 2, 3]), chip("Transpose", all_but_two={"max": 2})),
    (with_constant("Add", 4 * [[[1.0]]]), chip("Add", broadcast=["none"])),
    (with_constant("Add", 1.0), chip("Add", constant_operand={"equals": False})),
    (with_constant("Gather", [[0, 1]]), chip("Gather", indices_rank={"equals": 1})),
    (lambda: slice_by(2), chip("Slice", step_max={"max": 1})),
    (double("nearest"), chip("Resize", resize_mode=["linear"])),
    (double("linear"), chip("Resize", coordinate_mode=["asymmetric"])),
    (
        lambda: Net(x=(2, 9), y=(9, 2)).op("MatMul", "x", "y").model(),
        chip("MatMul", depth={"max": 8}),
    ),
    (one("HardSigmoid"), chip("HardSigmoid", alpha={"equals": "0.1667"})),
    (one("HardSigmoid", beta=0.25), chip("HardSigmoid", beta={"equals": "0.5"})),
    (lambda: max_pool(ceil_mode=1), FLOOR),
    (average_pool, COUNTED),
    (lambda: pad(mode="reflect"), CONSTANT),
    (lambda: pad(CHANNELS), IMAGES),
    (lambda: Net(x=(1, 9, 2, 2)).op("DepthToSpace", blocksize=3).model(), TWO),
    (max_pool, chip("MaxPool", kernel_h={"max": 2})),
    (add, chip("Add", in_c={"max": 3})),
    (
        lambda: average_pool(pads=[1, 1, 1, 1]),
        chip("AveragePool", require=[PADDED]),
    ),
    (max_pool, chip("MaxPool", kernel_h={"max": 2}, also={"unlisted_operators": "host"})),
]
SILENT = [
    (one("ReduceMean", axes=[2, -1]), chip("ReduceMean", axes={"equals": "2,3"})),
    (lambda: slice_by(-1), chip("Slice", step_max={"max": 1})),
    (one("HardSigmoid", alpha=1 / 6), chip("HardSigmoid", alpha={"equals": "0.1667"})),
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
