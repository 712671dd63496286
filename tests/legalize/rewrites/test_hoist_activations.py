"""Tests of hoist-activations."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.config import Options
from support.asserts import Passes, context, read, run_pass, same_numbers
from support.builders import Net
from support.target_files import chip

NAME = "hoist-activations"
X = (1, 4, 6, 6)


def shuffled(*ops: str, activation: str = "Relu") -> Net:
    """A convolution, DepthToSpace, these operators, and an activation."""
    net = Net(x=X).conv("x", (8, 4, 3, 3)).op("DepthToSpace", blocksize=2, mode="CRD")
    for op in ops:
        net.op(op)
    return net.op(activation)


def sliced() -> Net:
    net = Net(x=X).conv("x", (8, 4, 3, 3))
    ends = [net.constant(np.array([v], np.int64)) for v in (1, 3, 2)]
    return net.op("Slice", net.last, *ends).op("Relu")


def joined(second: str = "Conv", axis: int = 1) -> Net:
    net = Net(x=X).conv("x", (4, 4, 1, 1))
    first = net.last
    net.conv("x", (4, 4, 1, 1)) if second == "Conv" else net.op(second, "x")
    return net.op("Concat", first, net.last, axis=axis).op("Relu")


def clipped() -> Net:
    net = Net(x=X).conv("x", (8, 4, 3, 3)).op("Flatten")
    return net.op("Clip", net.last, net.constant(-0.1), net.constant(0.5))


def squeezed() -> Net:
    """A layer of one axis on an inserted axis."""
    net = Net(x=(2, 3, 1, 8)).conv("x", (4, 3, 1, 3))
    return net.op("Squeeze", net.last, net.constant(np.array([2], np.int64))).op("Relu")


def also_read() -> Net:
    net = Net(x=X).conv("x", (8, 4, 3, 3)).output()
    return net.op("DepthToSpace", blocksize=2).op("Relu").output()


FIRES = [
    lambda: shuffled().model(),
    lambda: shuffled("Transpose").model(),
    lambda: sliced().model(),
    lambda: joined().model(),
    lambda: joined(axis=2).model(),
    lambda: clipped().model(),
    lambda: squeezed().model(),
]
SILENT = [
    lambda: Net(x=X).conv("x", (8, 4, 3, 3)).op("Relu").model(),
    lambda: Net(x=X).op("DepthToSpace", blocksize=2).op("Relu").model(),
    lambda: joined("Neg").model(),
    lambda: shuffled("Neg").model(),
    lambda: shuffled(activation="Sigmoid").model(),
    lambda: also_read().model(),
]


@pytest.mark.parametrize(
    ("proto", "left"),
    [
        (shuffled("Transpose").model(), ["Conv", "Relu", "DepthToSpace", "Transpose"]),
        (joined().model(), ["Conv", "Conv", "Relu", "Relu", "Concat"]),
        (clipped().model(), ["Conv", "Clip", "Flatten"]),
        (squeezed().model(), ["Conv", "Relu", "Squeeze"]),
    ],
)
def test_what_is_left(proto, left):
    """The activation is right behind each convolution."""
    model, ctx = read(proto), context()
    while run_pass(NAME, model, ctx):
        pass
    assert [n.op for n in model.nodes()] == left
    same_numbers(proto, model)
    assert len({n.name for n in model.nodes()}) == len(left)


def test_only_what_the_target_names():
    """A device that fuses no activation gains nothing."""
    nothing = chip(also={"fused_activations": {"one_of": ["Clip"]}})
    assert run_pass(NAME, read(shuffled().model()), Passes(nothing, Options())) == 0
