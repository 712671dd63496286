"""Tests of reuse-idle-channels."""

from __future__ import annotations

import numpy as np
import pytest

from asserts import builtin, context, read, run_pass, same_numbers
from builders import Net
from idle_nets import CHANNELS, IDLE, inverted
from npuconv.model import query
from npuconv.model.core import Model
from npuconv.passes._context import PassContext
from npuconv.plan import make_plan

NAME = "reuse-idle-channels"
AGAIN = (0, 3, 2, 3, 3, 5, 0, 7)


def constant() -> Net:
    """Idle channels with a value of their own, that the next convolution pads nothing around."""
    return inverted(bias=1.5, pads=[0] * 4)


def pooled() -> Net:
    """A pool between, and two that mix the channels."""
    net = Net(x=("N", 3, 9, 9))
    weight = net.random(8, 3, 1, 1)
    values = np.frombuffer(net.initializers[-1].raw_data, np.float32).reshape(8, 3, 1, 1).copy()
    values[list(IDLE)] = 0
    net.initializers[-1].raw_data = values.tobytes()
    net.op("Conv", "x", weight, name="first").op("MaxPool", kernel_shape=[2, 2], to="p")
    net.conv("p", (4, 8, 1, 1), bias=False, name="a").op("Sigmoid", to="ya")
    net.conv("p", (4, 8, 3, 3), pads=[1] * 4, name="b").op("Tanh", to="yb")
    return net.output("ya", "yb").model()


FIRES = [inverted, constant, pooled]
SILENT = [lambda: Net(x=(1, 3, 8, 8)).conv("x", (8, 3, 1, 1), name="first").op("Relu").model()]


def changed(proto, index=AGAIN) -> tuple[Model, PassContext]:
    model, ctx = read(proto), context()
    ctx.plan, ctx.reuse = make_plan(model, builtin()), {"first": tuple(index)}
    assert run_pass(NAME, model, ctx) == 1
    same_numbers(proto, model)
    (record,) = ctx.rewrites
    assert record.difference is not None
    assert record.cost_after == record.cost_before
    return model, ctx


def weights(model: Model, name: str) -> np.ndarray:
    return query.constant_input(next(n for n in model.nodes() if n.name == name), 1)


@pytest.mark.parametrize("example", FIRES)
def test_the_numbers_are_the_same(example):
    """Whatever stands between, and whatever the idle ones were worth."""
    proto = example()
    before = read(proto)
    model, ctx = changed(proto)
    assert [n.op for n in model.nodes()] == [n.op for n in before.nodes()]
    np.testing.assert_array_equal(weights(model, "first"), weights(before, "first")[list(AGAIN)])
    assert set(ctx.channels.values()) == {AGAIN}


def test_copies_share_what_reads_them():
    """Three of a channel have a third of its weights each."""
    before, (model, _) = read(inverted()), changed(inverted())
    old, new = weights(before, "mixed"), weights(model, "mixed")
    for place in (1, 3, 4):
        np.testing.assert_allclose(new[:, place], old[:, 3] / 3, rtol=1e-6)
    np.testing.assert_array_equal(new[:, 7], old[:, 7])


def test_one_that_is_not_made_again_stays():
    """No more channels than are worth it."""
    model, ctx = changed(inverted(), (0, 3, 2, 3, 4, 5, 6, 7))
    assert ctx.rewrites[0].after == "1 idle channel is a copy of 3"
    assert (weights(model, "first")[4] == weights(read(inverted()), "first")[4]).all()


def test_the_report_says_which():
    """By their numbers, in the order of the tensor."""
    _, ctx = changed(inverted())
    assert ctx.rewrites[0].node == "first"
    assert ctx.rewrites[0].before == "Conv + Clip + Conv + Relu + Conv"
    assert ctx.rewrites[0].after == "3 idle channels are copies of 0, 3"


@pytest.mark.parametrize("example", [*FIRES, *SILENT])
def test_silent(example):
    """Nothing is changed that nobody asked for, or that there is no plan for."""
    model, ctx = read(example()), context()
    assert run_pass(NAME, model, ctx) == 0
    ctx.reuse = {"first": tuple(range(CHANNELS))}
    assert run_pass(NAME, model, ctx) == 0
    ctx.plan, ctx.reuse = make_plan(model, builtin()), {}
    assert run_pass(NAME, model, ctx) == 0


def test_weights_that_others_share_are_not_changed():
    """Another convolution with the same weights goes on with them."""
    net = Net(x=("N", 3, 9, 9))
    values = np.random.default_rng(0).standard_normal((8, 3, 1, 1))
    values[7] = 0
    shared = net.constant(values)
    net.op("Conv", "x", shared, name="other", to="o").op("Conv", "x", shared, name="first")
    proto = net.op("Relu").conv("", (2, 8, 1, 1), to="y").output("o", "y").model()
    model, _ = changed(proto, (0, 1, 2, 3, 4, 5, 6, 0))
    np.testing.assert_array_equal(weights(model, "other"), weights(read(proto), "other"))
    assert not np.array_equal(weights(model, "first"), weights(model, "other"))
