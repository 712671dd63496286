"""Tests of rewrite-channel-sum-as-conv."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.config import Options
from support.asserts import Passes, read, run_pass, same_numbers
from support.builders import Net
from support.target_files import chip

NAME = "rewrite-channel-sum-as-conv"
X = (2, 3, 8, 8)


def between(op: str = "ReduceMean", axis: int = 1, keepdims: int = 1) -> Net:
    """A reduction between two convolutions."""
    net = Net(x=X).conv("x", (6, 3, 3, 3)).op("Relu")
    axes = {"axes": [axis]} if op != "ReduceSum" else {}
    inputs = [] if axes else [net.last, net.constant(np.asarray([axis]))]
    net.op(op, *inputs, name="sum", keepdims=keepdims, **axes)
    if not keepdims:
        net.op("Unsqueeze", net.last, net.constant(np.asarray([1])))
    return net.conv(net.last, (4, 1, 3, 3))


def normalized() -> Net:
    """The mean over channels is subtracted from its input."""
    net = Net(x=X).conv("x", (6, 3, 3, 3), to="y")
    net.op("ReduceMean", "y", axes=[1], to="mean", name="sum")
    net.conv("mean", (6, 1, 1, 1), to="z")
    return net.op("Sub", "y", "mean").op("Add", net.last, "z")


FIRES = [
    lambda: between().model(),
    lambda: between("ReduceSum").model(),
    lambda: between(axis=-3).model(),
]
SILENT = [
    lambda: between("ReduceMax").model(),
    lambda: between(axis=0).model(),
    lambda: normalized().model(),
    # no convolution is before it, none behind it
    lambda: Net(x=(2, 6, 8, 8)).op("ReduceMean", axes=[1]).conv("", (4, 1, 3, 3)).model(),
    lambda: Net(x=X).conv("x", (6, 3, 3, 3)).op("ReduceMean", axes=[1]).op("Sqrt").model(),
]


@pytest.mark.parametrize(("op", "weight"), [("ReduceMean", 1 / 6), ("ReduceSum", 1.0)])
def test_weights(op: str, weight: float) -> None:
    """One output channel of equal weights."""
    model = read(between(op).model())
    assert run_pass(NAME, model) == 1
    conv = model.nodes("Conv")[1]
    assert conv.inputs[1].values.shape == (1, 6, 1, 1)
    assert np.allclose(conv.inputs[1].values, weight)


def test_without_keepdims():
    """A Squeeze follows, which the device must take."""
    proto, operators = between(keepdims=0).model(), {"Conv": {}, "Squeeze": {}, "Unsqueeze": {}}
    model = read(proto)
    assert run_pass(NAME, model, Passes(chip(also={"operators": operators}), Options())) == 1
    assert [n.op for n in model.nodes()] == ["Conv", "Relu", "Conv", "Squeeze", "Unsqueeze", "Conv"]
    same_numbers(proto, model)


def test_a_normalization_stays():
    """All later values are divided by its mean."""
    ctx = Passes(chip(also={"operators": {"Conv": {}, "Sub": {}}}), Options())
    assert run_pass(NAME, read(normalized().model()), ctx) == 0
    reason = "it is the mean or the variance of a normalization"
    assert [(r.node, r.reason) for r in ctx.refusals] == [("sum", reason)]


def test_no_offload_leaves_it_alone():
    """The host computes it."""
    ctx = Passes(chip(), Options(offload=False))
    assert run_pass(NAME, read(between().model()), ctx) == 0
