"""Tests of cancel-squeezes."""

from __future__ import annotations

import numpy as np
import pytest

from support.asserts import context, read, run_pass, same_numbers
from support.builders import Net

NAME = "cancel-squeezes"
X = (2, 3, 1, 8)


def net(**inputs) -> Net:
    return Net(**(inputs or {"x": X}))


def axes(made: Net, *values: int) -> str:
    return made.constant(np.array(values, np.int64))


def squeezed(made: Net, source: str = "", axis: int = 2) -> Net:
    return made.op("Squeeze", source or made.last, axes(made, axis))


def unsqueezed(made: Net, source: str = "", axis: int = 2) -> Net:
    return made.op("Unsqueeze", source or made.last, axes(made, axis))


def between(*ops: str) -> Net:
    """Put operators between a Squeeze and the Unsqueeze that undoes it."""
    made = squeezed(net())
    for op in ops:
        made.op(op)
    return unsqueezed(made).op("Neg")


def with_constant(op: str, *shape: int) -> Net:
    made = squeezed(net())
    made.op(op, made.last, made.random(*shape, low=0.5, high=1.5))
    return unsqueezed(made).op("Neg")


def branches(op: str, *, both: bool = True, **attrs) -> Net:
    """Two inputs; the second is squeezed too, or has no such axis."""
    made = net(x=X, z=X) if both else net(x=X, z=(2, 3, 8))
    first = squeezed(made, "x").last
    second = squeezed(made, "z").last if both else "z"
    made.op(op, first, second, **attrs)
    return unsqueezed(made).op("Neg")


def several_readers() -> Net:
    made = squeezed(net())
    shared = made.last
    made.op("Exp", shared).output()
    return unsqueezed(made, shared).op("Neg").output()


def normalized() -> Net:
    made = squeezed(net())
    return unsqueezed(made.batchnorm(3)).op("Neg")


def behind_convolution() -> Net:
    return squeezed(net(x=(2, 3, 1, 8)).conv("x", (4, 3, 1, 3))).op("Relu")


FIRES = [
    lambda: between().model(),
    lambda: between("Relu").model(),
    lambda: between("Relu", "Sigmoid", "Abs").model(),
    lambda: unsqueezed(squeezed(net(), axis=-2)).op("Neg").model(),
    lambda: squeezed(unsqueezed(net(x=(2, 3, 8)))).op("Neg").model(),
    lambda: with_constant("Add", 3, 1).model(),
    lambda: with_constant("Mul", 8).model(),
    lambda: with_constant("PRelu", 3, 1).model(),
    lambda: with_constant("Sub", 2, 3, 8).model(),
    lambda: branches("Add").model(),
    lambda: branches("Mul", both=False).model(),
    lambda: branches("Concat", axis=1).model(),
    lambda: branches("Concat", axis=-1).model(),
    lambda: several_readers().model(),
    lambda: normalized().model(),
    lambda: behind_convolution().model(),
]
SILENT = [
    lambda: squeezed(net()).op("Relu").model(),
    lambda: squeezed(net()).op("Softmax").model(),
    lambda: unsqueezed(squeezed(net()).op("Softmax")).op("Neg").model(),
    lambda: unsqueezed(squeezed(net()), axis=1).op("Neg").model(),
    lambda: unsqueezed(squeezed(net())).model(),
    lambda: net().op("Squeeze").model(),
]


@pytest.mark.parametrize(
    ("proto", "left"),
    [
        (between().model(), ["Neg"]),
        (between("Relu", "Sigmoid").model(), ["Relu", "Sigmoid", "Neg"]),
        (branches("Add").model(), ["Add", "Neg"]),
        (branches("Concat", axis=1).model(), ["Concat", "Neg"]),
        (branches("Mul", both=False).model(), ["Unsqueeze", "Mul", "Neg"]),
        (normalized().model(), ["BatchNormalization", "Neg"]),
        (several_readers().model(), ["Squeeze", "Exp", "Neg"]),
        (behind_convolution().model(), ["Conv", "Relu", "Squeeze"]),
    ],
)
def test_what_is_left(proto, left):
    """After as many runs as it takes."""
    model, ctx = read(proto), context()
    while run_pass(NAME, model, ctx):
        pass
    assert [n.op for n in model.nodes()] == left
    same_numbers(proto, model)


def test_a_concat_along_the_last_axis_stays_there():
    """Axes are counted again once one more is in."""
    model, ctx = read(branches("Concat", axis=-1).model()), context()
    while run_pass(NAME, model, ctx):
        pass
    assert model.nodes("Concat")[0].attrs["axis"] == 3


def test_it_looks_only_so_far_ahead():
    """An Unsqueeze at the end of a hundred operators is not met."""
    assert run_pass(NAME, read(between(*["Abs"] * 100).model())) == 0
