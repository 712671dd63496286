"""Tests of align-input."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.model import query
from npuconv.model.core import Model
from npuconv.partition.placement import make_plan
from npuconv.target import Target
from support.asserts import Passes, apply_pass, context, read, same_numbers
from support.builders import Net

NAME = "align-input"
OFFSETS = np.asarray([0.25, 0.0, -0.1, 0.2])


def one(**attrs) -> Net:
    return Net(x=(1, 4, 8, 8)).conv("x", (4, 4, 3, 3), name="conv", **attrs)


def two() -> Net:
    """Two readers, one of them depthwise, and the host reads it, too."""
    net = one().conv("x", (8, 1, 3, 3), group=4, name="b", to="y").op("Sigmoid", "x", to="z")
    return net.output("t0", "y", "z")


FIRES = [
    lambda: one().model(),
    lambda: one(bias=False).model(),
    lambda: Net(x=("N", 4, "H", "W")).conv("x", (4, 2, 1, 1), group=2).model(),
    lambda: two().model(),
]
SILENT = [
    lambda: Net(x=(1, 4, 8)).conv("x", (4, 4, 3)).model(),
    lambda: Net(x=(1, 4, 8, 8), w=(4, 4, 3, 3)).op("Conv", "x", "w").model(),
]


def aligned(proto, target: Target | None = None) -> tuple[Model, Passes, int]:
    """The model after the pass, with the offsets of x."""
    model, ctx = read(proto), context()
    ctx.target = target or ctx.target
    plan = make_plan(model, ctx.target)
    assert plan.convolutions
    return model, ctx, apply_pass(NAME, model, ctx, plan=plan, offsets={"x": OFFSETS})


@pytest.mark.parametrize("example", FIRES)
def test_it_moves(example):
    """One Sub for all convolutions that read it; the numbers stay."""
    model, ctx, fired = aligned(example())
    assert fired == 1
    (sub,) = model.nodes("Sub")
    readers = query.consumers(sub.outputs[0])
    assert len(readers) == len(model.nodes("Conv"))
    np.testing.assert_array_equal(query.constant_input(sub, 1).ravel(), OFFSETS.astype(np.float32))
    same_numbers(example(), model)
    assert [record.difference < 1e-5 for record in ctx.rewrites] == [True]


def test_only_what_is_named():
    """Samples decide; the pass does not."""
    model, ctx = read(one().model()), context()
    assert apply_pass(NAME, model, ctx, plan=make_plan(model, ctx.target), offsets={}) == 0
    assert not model.nodes("Sub")


@pytest.mark.parametrize("example", SILENT)
def test_silent(example):
    """Weights that are not known, or of another rank."""
    model, _, fired = aligned(example())
    assert fired == 0
    assert not model.nodes("Sub")


def test_the_target_may_object():
    """A bias that was not there may be too much."""
    limited = Target.model_validate(
        {
            "schema": 1, "name": "bare",
            "operators": {"Conv": {"limits": {"bias": {"equals": False}}}},
            "activations": {"dtype": "int8", "zero_point": [0]},
            "weights": {"dtype": "int8", "symmetric": True},
        }
    )  # fmt: skip
    _, ctx, fired = aligned(one(bias=False).model(), limited)
    assert fired == 0
    assert "bias" in next(iter(ctx.refusals)).reason
