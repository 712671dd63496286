"""Operators that pass int8 values on."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.partition.placement import make_plan
from npuconv.target import Target
from support.asserts import read
from support.builders import Net

NPU = Target.load("npu-int8")
X = (1, 4, 8, 8)


def net():
    """A convolution to follow: t0 is int8 [1, 4, 8, 8]."""
    return Net(x=X).conv("x", (4, 4, 1, 1), name="conv")


def passed(built, **options):
    """Operators that run on int8 tensors, in order."""
    return [n.op for n in make_plan(read(built.model()), NPU, **options).passthrough]


def ints(built, *values):
    return built.constant(np.asarray(values, np.int64))


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("Relu", {}),
        ("Clip", {}),
        ("MaxPool", {"kernel_shape": [2, 2]}),
        ("Flatten", {}),
        ("Squeeze", {}),
        ("Transpose", {"perm": [0, 2, 3, 1]}),
        ("DepthToSpace", {"blocksize": 2}),
        ("SpaceToDepth", {"blocksize": 2}),
        ("Split", {"axis": 1, "outputs": 2}),
    ],
)
def test_passthrough_operators(op, attrs):
    """Passthrough operators give the same integers on int8 tensors."""
    assert passed(net().op(op, **attrs)) == [op]


def test_passthrough_operators_with_more_inputs():
    """Shapes, axes, indices, bounds and fill values are no data."""
    built = net().reshape([1, 4, 64])
    assert passed(built) == ["Reshape"]
    built = net()
    assert passed(built.op("Gather", "t0", ints(built, 0, 1), axis=1)) == ["Gather"]
    built = net()
    assert passed(built.op("Slice", "t0", ints(built, 0), ints(built, 2))) == ["Slice"]
    built = net()
    assert passed(built.op("Unsqueeze", "t0", ints(built, 0))) == ["Unsqueeze"]
    built = net()
    assert passed(built.op("Clip", "t0", "", built.constant(6.0))) == ["Clip"]
    assert passed(net().pad([0, 0, 1, 1, 0, 0, 1, 1], value=0.5)) == ["Pad"]
    assert passed(net().pad([0, 0, 1, 1, 0, 0, 1, 1], value=None)) == ["Pad"]
    built = net()
    scales = built.constant([1.0, 1.0, 2.0, 2.0])
    assert passed(built.op("Resize", "t0", "", scales, mode="nearest")) == ["Resize"]
    assert passed(net().op("Concat", "t0", "t0", axis=1)) == ["Concat"]


def clip_by_computed_bounds():
    built = net().op("ReduceMin", "x", keepdims=0, to="low")
    return built.op("Clip", "t0", "low")


def resize(**attrs):
    built = net()
    return built.op("Resize", "t0", "", built.constant([1.0, 1.0, 2.0, 2.0]), **attrs)


def padded_by_a_computed_value():
    built = net().op("ReduceMin", "x", keepdims=0, to="low")
    return built.op("Pad", "t0", ints(built, 0, 0, 1, 1, 0, 0, 1, 1), "low")


@pytest.mark.parametrize(
    "built",
    [
        clip_by_computed_bounds(),
        resize(mode="linear"),
        resize(mode="cubic"),
        resize(mode="nearest", coordinate_transformation_mode="tf_crop_and_resize"),
        net().op("MaxPool", kernel_shape=[2, 2], outputs=2),
        net().op("MaxPool", kernel_shape=[2, 2], storage_order=1),
        net().pad([0, 0, 1, 1, 0, 0, 1, 1], value=None, mode="reflect"),
        padded_by_a_computed_value(),
        net().op("Sigmoid"),
        net().op("Relu", domain="com.example"),
        net().op("Concat", "t0", "x", axis=1),
        Net(x=X).op("Relu"),
    ],
    ids=[
        "clip-computed", "resize-linear", "resize-cubic", "resize-crop", "pool-indices",
        "pool-order", "pad-reflect", "pad-computed", "sigmoid", "foreign", "concat-float", "float",
    ],
)  # fmt: skip
def test_what_is_not_passed_on(built):
    """Others would change integers, or have unknown bounds."""
    assert passed(built) == []


def test_a_concat_kept_float():
    """A Concat that the user keeps float passes nothing on, and neither does its consumer."""
    built = net().op("Concat", "t0", "t0", axis=1, name="join").op("Relu")
    assert passed(built) == ["Concat", "Relu"]
    assert passed(built, keep_float={"join": "join"}) == []
