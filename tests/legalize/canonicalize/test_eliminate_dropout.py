"""Tests of eliminate-dropout."""

from __future__ import annotations

import numpy as np
import pytest

from support.asserts import context, read, refusals, run_pass, same_numbers
from support.builders import Net

NAME = "eliminate-dropout"


def training(flag: bool) -> Net:
    """A Dropout that is told whether it trains."""
    net = Net(x=(1, 3, 8, 8)).op("Relu")
    return net.op("Dropout", net.last, net.constant(np.float32(0.5)), net.constant(np.array(flag)))


def with_mask(*outputs: str) -> Net:
    """A Dropout whose second output is there."""
    net = Net(x=(1, 3, 8, 8)).op("Relu").op("Dropout", outputs=2, name="drop")
    return net.op("Neg").output(net.last, *outputs)


def masked() -> Net:
    """A Dropout whose mask chooses between two tensors."""
    net = Net(x=(1, 3, 8, 8)).op("Dropout", outputs=2, name="drop").op("Neg")
    return net.op("Where", "t0_1", "x", net.last)


FIRES = [
    lambda: Net(x=(1, 3, 8, 8)).op("Relu").op("Dropout").op("Neg").model(),
    lambda: Net(x=(1, 3, 8, 8)).conv().op("Dropout").model(),
    lambda: training(False).model(),
    lambda: with_mask().model(),
]
SILENT = [
    lambda: training(True).model(),
    lambda: masked().model(),
    lambda: Net(x=(1, 4)).op("Dropout").model(),
    lambda: Net(x=(1, 4)).op("Relu").model(),
]
# Its numbers are random.
NOT_RUNNABLE = [SILENT[0]]


@pytest.mark.parametrize("build", FIRES)
def test_what_is_left(build):
    """No Dropout, the same outputs."""
    proto = build()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    assert not model.nodes("Dropout")
    assert [t.name for t in model.graph.outputs] == [o.name for o in proto.graph.output]
    same_numbers(proto, model)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (SILENT[0], "training_mode is set, or not constant"),
        (SILENT[1], "its mask is read"),
        (SILENT[2], "it copies an input or a shared tensor to an output of the model"),
    ],
)
def test_near_misses(build, reason):
    """Each says why."""
    assert [reason for _, reason in refusals(NAME, build())] == [reason]


def test_a_mask_that_is_an_output_of_the_model():
    """A mask may be read as an output of the model, not by nodes alone."""
    assert refusals(NAME, with_mask("t1_1")) == [("drop", "its mask is read")]


def test_a_constant_behind_a_ratio_that_is_not():
    """The constant data replaces the node; the ratio is dropped."""
    net = Net(x=(2, 3), ratio=())
    net.op("Dropout", net.random(2, 3), "ratio").op("Add", "x", "t0")
    model, ctx = read(net.model()), context()
    assert run_pass(NAME, model, ctx) == 1
    assert ctx.rewrites[0].max_abs_difference == 0.0
