"""Which int8 tensors the outputs show."""

from __future__ import annotations

from asserts import read
from builders import Net
from npuconv.plan import make_plan
from npuconv.plan.shown import shown
from npuconv.target import Target

NPU = Target.load("npu-int8")


def names(net: Net) -> set[str]:
    """Of the tensors in the groups that are shown."""
    model = read(net.model())
    return {name for group in shown(model, make_plan(model, NPU)) for name in group.tensors}


def test_behind_operators_of_the_host():
    """And of what carries int8 on."""
    net = Net(x=(1, 4, 8, 8)).conv("x", (4, 4, 1, 1)).conv("", (4, 4, 1, 1)).op("Relu")
    assert names(net.op("Softmax")) == {"t1", "t2"}


def test_each_branch():
    """Not what a layer of the device comes behind."""
    net = Net(x=(1, 4, 8, 8)).conv("x", (4, 4, 1, 1), to="a").op("Sigmoid", "a", to="b")
    net.conv("b", (4, 4, 1, 1), to="c").op("Mul", "c", "b", to="y")
    assert names(net) == {"a", "c"}


def test_a_model_of_the_host():
    assert names(Net(x=(1, 4, 8, 8)).op("Relu")) == set()
