"""Along which axis the largest value is an answer."""

from __future__ import annotations

import pytest

from npuconv.evaluate.comparison import class_axes
from support.builders import Net


@pytest.mark.parametrize(("given", "axis"), [({}, -1), ({"axis": 1}, 1)])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_a_softmax_tells(op: str, given: dict[str, int], axis: int):
    """Also where the output has been renamed behind it."""
    model = Net(x=(1, 3, 4, 4)).op(op, **given).op("Identity", to="y").model()
    assert class_axes(model) == {"y": axis}


def test_nothing_else_does():
    """Boxes have no classes; nor does what a Softmax is mixed into."""
    net = Net(x=(1, 3, 4, 4)).op("Sigmoid", to="boxes").op("Softmax", "x", to="s")
    model = net.op("Mul", "s", "boxes", to="y").output("boxes", "y").model()
    assert class_axes(model) == {}


@pytest.mark.parametrize(
    ("shape", "given", "found"),
    [
        ((1, 10), {}, {"y": 1}),
        ((1, 40, 10), {"axis": 2}, {"y": 2}),
        ((1, 40, 10), {"axis": -1}, {"y": -1}),
        ((1, 40, 10), {}, {}),
    ],
)
def test_before_opset_13_only_the_last_axis_is_one(
    shape: tuple[int, ...], given: dict[str, int], found: dict[str, int]
):
    """What was behind the axis was normalized with it: no single axis has the answer."""
    model = Net(opset=11, x=shape).op("Softmax", to="y", **given).model()
    assert class_axes(model) == found
