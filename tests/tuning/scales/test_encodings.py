"""Encodings of a whole plan."""

from __future__ import annotations

import numpy as np
import pytest

from asserts import context, read
from builders import Net
from npuconv.passes._context import PassContext
from npuconv.plan import make_plan
from npuconv.plan.channels import trace
from npuconv.tuning.scales.demands import demands
from npuconv.tuning.scales.encodings import encode
from plans import prepare, random_feeds, watch


def encoded(net: Net) -> PassContext:
    model, ctx = read(net.model()), context()
    prepare(model, ctx)
    return ctx


def image() -> Net:
    return Net(x=(1, 3, 8, 8)).conv("x", to="a")


def test_every_int8_tensor_has_one():
    """Inputs and outputs of convolutions, and what is carried."""
    ctx = encoded(image().op("Relu", to="r").conv("r", (2, 4, 3, 3), to="y"))
    assert set(ctx.encodings) == {"x", "a", "r", "y"}
    assert [ctx.encodings[n].scales.size for n in ("x", "a", "r", "y")] == [3, 4, 4, 2]
    assert {e.axis for e in ctx.encodings.values()} == {1}


def test_a_group_has_one_nominal_scale():
    """The largest of all its channels: ratios are at most 1."""
    net = image().conv("x", (2, 3, 3, 3), to="b").op("Concat", "a", "b", axis=1, to="y")
    ctx = encoded(net)
    parts = [ctx.encodings[name] for name in ("a", "b", "y")]
    assert len({e.nominal for e in parts}) == 1
    assert parts[2].nominal == parts[2].scales.max()
    assert np.array_equal(parts[2].scales, np.concatenate([parts[0].scales, parts[1].scales]))
    assert np.array_equal(parts[2].zeros, np.concatenate([parts[0].zeros, parts[1].zeros]))


def test_scales_follow_their_channels():
    """Along another axis, and in another order."""
    net = image().op("Transpose", perm=[0, 2, 3, 1], to="t")
    ctx = encoded(net.op("Gather", "t", net.constant(np.asarray([2, 0])), axis=3, to="y"))
    assert [ctx.encodings[n].axis for n in ("a", "t", "y")] == [1, 3, 3]
    assert np.array_equal(ctx.encodings["y"].scales, ctx.encodings["a"].scales[[2, 0]])


def test_channels_that_are_alike_are_one():
    """Then there is no axis, and nothing to write for each."""
    ctx = encoded(image().op("DepthToSpace", blocksize=2, to="y"))
    for name in ("a", "y"):
        assert (ctx.encodings[name].axis, ctx.encodings[name].scales.shape) == (None, (1,))


def test_how_it_was_chosen():
    """By group, for the report; an unknown method is an error of the caller's."""
    model = read(image().model())
    plan = make_plan(model, context().target)
    channels = trace(plan)
    stats = watch(model, plan, channels, random_feeds(model))
    asked = demands(model, plan, channels, stats, ("a",))
    found, wider = encode(plan, channels, asked, [("mse", False), ("minmax", True)])
    assert set(found.methods) == set(wider.methods) == {"x", "a"}
    assert all(word.startswith("mse") for word in found.methods.values())
    assert not found.by_tensor["a"].zeros.any()
    assert np.all(wider.by_tensor["a"].scales > found.by_tensor["a"].scales)
    with pytest.raises(KeyError):
        encode(plan, channels, demands(model, plan, channels, stats), [("guess", False)])
