"""Tensors that share a scale."""

from __future__ import annotations

from npuconv.partition import make_plan
from npuconv.target import Target
from support.asserts import read
from support.builders import Net

NPU = Target.load("npu-int8")
X = (1, 4, 8, 8)


def net():
    """A convolution to follow: t0 is int8 [1, 4, 8, 8]."""
    return Net(x=X).conv("x", (4, 4, 1, 1), name="conv")


def planned(built):
    return make_plan(read(built.model()), NPU)


def groups(built):
    return {g.name: (g.tensors, g.ends) for g in planned(built).groups}


def test_groups():
    """Tensors joined by carried operators share a scale; the last ones decide the range."""
    built = net().op("Relu").op("MaxPool", kernel_shape=[2, 2]).conv("", (2, 4, 1, 1))
    assert groups(built) == {
        "x": (["x"], ["x"]), "t0": (["t0", "t2", "t1"], ["t2"]), "t3": (["t3"], ["t3"]),
    }  # fmt: skip
    plan = planned(built)
    assert plan.group_of()["t1"] is plan.group_of()["t2"]


def test_a_tensor_that_the_host_reads_too():
    """It decides as well: nothing of it may be cut off."""
    built = net().op("Relu", "t0").op("Sigmoid", "t0").output("t1", "t2")
    assert groups(built)["t0"] == (["t0", "t1"], ["t0", "t1"])
    built = net().op("Relu", "t0").output("t0", "t1")
    assert groups(built)["t0"] == (["t0", "t1"], ["t0", "t1"])


def test_branches_that_meet_share_a_scale():
    """All inputs of a Concat and its output are one group."""
    built = net().conv("x", (4, 4, 1, 1)).conv("x", (4, 4, 1, 1))
    built.op("Concat", "t0", "t1", axis=1, to="a").op("Concat", "a", "t2", axis=1, to="b")
    assert groups(built)["t0"] == (["t0", "t1", "t2", "a", "b"], ["b"])
