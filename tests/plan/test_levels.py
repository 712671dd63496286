"""Between which values channels stay."""

from __future__ import annotations

import numpy as np
import pytest

from asserts import builtin, read, run
from builders import Net
from npuconv.plan import make_plan
from npuconv.plan.levels import Levels, levels, parameters
from npuconv.plan.strands import strand

X = (1, 2, 6, 6)


def net(low: float = -2.0, high: float = 2.0) -> Net:
    """Tensors of every kind behind a convolution; all outputs but one are within a strand."""
    built = Net(x=X)
    weight, bias = np.zeros((4, 2, 1, 1)), [-1.5, 0.5, 1.0, 3.0]
    built.op("Conv", "x", built.constant(weight), built.constant(np.float32(bias)), name="first")
    built.op(
        "Clip", built.last, *(built.constant(np.float32(v)) for v in (low, high)), to="clipped"
    )
    built.pad([0, 0, 1, 1, 0, 0, 1, 1])
    built.op("MaxPool", kernel_shape=[2, 2], to="pooled")
    built.conv("", (4, 1, 3, 3), group=4, pads=[1] * 4, to="followed").op("Relu", to="cut")
    return built.conv("", (2, 4, 1, 1), name="mixed").op("Sigmoid")


@pytest.mark.parametrize("limits", [(-2.0, 2.0), (0.0, 6.0), (-9.0, 9.0)])
def test_no_value_is_beyond(limits):
    """Those of channels that have one value, and of the zeros that are put around them."""
    model = read(net(*limits).model())
    plan = make_plan(model, builtin())
    own = strand(model, plan, next(n for n in plan.device if n.name == "first"))
    _, bias = parameters(own.maker)
    found = levels(own, Levels(bias, bias))
    names = ["clipped", "pooled", "followed", "cut"]
    for name, values in zip(names, run(net(*limits).output(*names).model()), strict=True):
        lows, highs = values.min(axis=(0, 2, 3)), values.max(axis=(0, 2, 3))
        assert (lows >= found[name].low - 1e-5).all(), name
        assert (highs <= found[name].high + 1e-5).all(), name
    assert found["clipped"].low.tolist() == np.clip(bias, *limits).tolist()


def test_zeros_around_a_map_are_values_of_it():
    """A channel of one value has two where a Pad has put zeros beside it."""
    model = read(net().model())
    plan = make_plan(model, builtin())
    own = strand(model, plan, next(n for n in plan.device if n.name == "first"))
    bias = np.asarray([0.0, 0.5, 1.0, 2.0])
    low, high = levels(own, Levels(bias, bias))["pooled"]
    assert (low == 0).all()
    assert (high == bias).all()
