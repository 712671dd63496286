"""Which tensors need one scale for all of their channels."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from asserts import builtin, read
from builders import Net
from npuconv.plan import make_plan
from npuconv.tuning.scales.bounds import uniform, upper_bound


def needed(proto: onnx.ModelProto) -> set[str]:
    return set(uniform(make_plan(read(proto), builtin())))


def image() -> Net:
    return Net(x=(1, 3, 8, 8)).conv("x", to="a")


def clip(net: Net, low: float | None, high: float | None, source: str = "a", to: str = "y") -> Net:
    names = [net.constant(np.float32(v)) if v is not None else "" for v in (low, high)]
    return net.op("Clip", source, *names, to=to)


def two() -> Net:
    """Two convolutions, of which the first is clipped to 0..6."""
    return clip(image().conv("x", to="b"), 0, 6)


def test_a_bound_that_int8_ends_at_needs_nothing():
    """Relu, Clip from 0, and what comes behind them."""
    assert needed(image().op("Relu").model()) == set()
    assert needed(clip(image(), 0, 6).model()) == set()
    assert needed(clip(image(), 0, None).model()) == set()
    assert needed(clip(image(), 0, 6).op("MaxPool", kernel_shape=[2, 2]).model()) == set()
    assert needed(clip(image(), 0, 6).conv("y", (2, 4, 3, 3), pads=[1] * 4).model()) == set()


@pytest.mark.parametrize("bounds", [(-1, 1), (0.5, 6), (None, 6)])
def test_a_lower_bound_other_than_0(bounds):
    """Its integer is one for all channels."""
    assert needed(clip(image(), *bounds).model()) == {"a", "y"}


def test_a_fill_other_than_0():
    """So is that of a Pad."""
    assert needed(image().pad([0, 0, 1, 1, 0, 0, 1, 1], 0.0).model()) == set()
    assert needed(image().pad([0, 0, 1, 1, 0, 0, 1, 1], None).model()) == set()
    net = image().pad([0, 0, 1, 1, 0, 0, 1, 1], 1.0)
    assert needed(net.model()) == {"a", net.last}


def test_a_reader_of_what_is_not_clipped():
    """It must get the values beyond the bound."""
    assert needed(clip(image(), 0, 6).output("a", "y").model()) == {"a", "y"}
    assert needed(clip(image(), 0, 6).op("Neg", "a").output("y", "t2").model()) == {"a", "y"}
    pooled = clip(image(), 0, 6).op("MaxPool", "a", kernel_shape=[2, 2], to="p")
    assert needed(pooled.output("y", "p").model()) == {"a", "y"}


def test_what_is_joined_with_the_clip():
    """Channel beside channel each keeps its own; where they share scales they share bounds."""
    assert needed(two().op("Concat", "y", "b", axis=1).model()) == set()
    assert needed(two().op("Concat", "y", "b", axis=2).model()) == {"a", "y"}
    same = clip(two(), 0, 6, "b", "z").op("Concat", "y", "z", axis=2)
    assert needed(same.model()) == set()
    other = clip(two(), 0, 4, "b", "z").op("Concat", "y", "z", axis=2)
    assert needed(other.model()) == {"a", "y", "b", "z"}


def test_upper_bounds():
    """Of a Clip, if it has one."""
    plan = make_plan(read(clip(image(), 0, 6).model()), builtin())
    assert upper_bound(plan.carried[0]) == 6
    plan = make_plan(read(image().op("Relu").model()), builtin())
    assert upper_bound(plan.carried[0]) == np.inf
