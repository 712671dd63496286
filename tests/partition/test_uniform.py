"""Tensors whose channels must share a scale."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from npuconv.partition.uniform import upper_bound
from support.asserts import read
from support.builders import Net
from support.plans import planned


def image() -> Net:
    return Net(x=(1, 3, 8, 8)).conv("x", to="a")


def needed(proto: onnx.ModelProto) -> set[str]:
    """Tensors whose channels must share a scale."""
    return set(planned(read(proto)).uniform_tensors)


def bounded(
    net: Net, low: float | None, high: float | None, source: str = "a", to: str = "y"
) -> Net:
    names = [net.constant(np.float32(v)) if v is not None else "" for v in (low, high)]
    return net.op("Clip", source, *names, to=to)


def two() -> Net:
    """Two convolutions, of which the first is clipped to 0..6."""
    return bounded(image().conv("x", to="b"), 0, 6)


def test_a_bound_that_int8_ends_at_needs_nothing():
    """Relu, Clip from 0, and what comes behind them."""
    assert needed(image().op("Relu").model()) == set()
    assert needed(bounded(image(), 0, 6).model()) == set()
    assert needed(bounded(image(), 0, None).model()) == set()
    assert needed(bounded(image(), 0, 6).op("MaxPool", kernel_shape=[2, 2]).model()) == set()
    assert needed(bounded(image(), 0, 6).conv("y", (2, 4, 3, 3), pads=[1] * 4).model()) == set()


@pytest.mark.parametrize("bounds", [(-1, 1), (0.5, 6), (None, 6)])
def test_a_lower_bound_other_than_0(bounds):
    """Its integer is one for all channels."""
    assert needed(bounded(image(), *bounds).model()) == {"a", "y"}


def test_a_fill_other_than_0():
    """So is that of a Pad."""
    assert needed(image().pad([0, 0, 1, 1, 0, 0, 1, 1], 0.0).model()) == set()
    assert needed(image().pad([0, 0, 1, 1, 0, 0, 1, 1], None).model()) == set()
    net = image().pad([0, 0, 1, 1, 0, 0, 1, 1], 1.0)
    assert needed(net.model()) == {"a", net.last}


def test_a_reader_of_what_is_not_clipped():
    """It must get the values beyond the bound."""
    assert needed(bounded(image(), 0, 6).output("a", "y").model()) == {"a", "y"}
    assert needed(bounded(image(), 0, 6).op("Neg", "a").output("y", "t2").model()) == {"a", "y"}
    pooled = bounded(image(), 0, 6).op("MaxPool", "a", kernel_shape=[2, 2], to="p")
    assert needed(pooled.output("y", "p").model()) == {"a", "y"}


def test_what_is_joined_with_the_bounded():
    """Channel beside channel each keeps its own; where they share scales they share bounds."""
    assert needed(two().op("Concat", "y", "b", axis=1).model()) == set()
    assert needed(two().op("Concat", "y", "b", axis=2).model()) == {"a", "y"}
    same = bounded(two(), 0, 6, "b", "z").op("Concat", "y", "z", axis=2)
    assert needed(same.model()) == set()
    other = bounded(two(), 0, 4, "b", "z").op("Concat", "y", "z", axis=2)
    assert needed(other.model()) == {"a", "y", "b", "z"}


def test_upper_bounds():
    """Of a Clip, if it has one."""
    clipped = planned(read(bounded(image(), 0, 6).model())).plan.carried[0]
    assert upper_bound(clipped) == 6
    assert upper_bound(planned(read(image().op("Relu").model())).plan.carried[0]) == np.inf
