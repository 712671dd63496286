"""Tests of fuse-reshapes."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from support.asserts import context, read, run_pass, same_numbers
from support.builders import Net

NAME = "fuse-reshapes"
X = (1, 3, 8, 8)


def squeezed(net: Net, op: str, *axes: int) -> Net:
    """Append a Squeeze or Unsqueeze."""
    return net.op(op, net.last, net.constant(np.asarray(axes, np.int64)))


FIRES = [
    lambda: Net(x=X).op("Relu").reshape([-1]).reshape([1, 3, 8, 8]).op("Relu").model(),
    lambda: Net(x=X).reshape([1, 24, 8]).op("Flatten").model(),
    lambda: Net(x=("N", 12)).reshape([-1, 3, 4]).reshape([-1, 2, 6]).model(),
    lambda: squeezed(Net(x=X).reshape([1, 1, 24, 8]), "Squeeze", 1).op("Relu").model(),
    lambda: squeezed(Net(x=X), "Unsqueeze", 2).reshape([1, 24, 8]).model(),
]


def read_twice() -> Net:
    """Build a net in which the tensor between the two is an output."""
    net = Net(x=X).reshape([1, 24, 8])
    between = net.last
    return net.reshape([1, 8, 24]).op("Neg", between, to="n").output("n", "t1", between)


SILENT = [
    lambda: read_twice().model(),
    lambda: Net(x=("N", 12)).reshape([-1, 3, 4]).reshape([0, 2, 6]).model(),
    lambda: Net(x=X).reshape([1, 24, 8]).op("Relu").reshape([1, 8, 24]).model(),
    lambda: squeezed(squeezed(Net(x=X), "Unsqueeze", 2), "Squeeze", 2).model(),
    lambda: Net(x=(0, 12)).reshape([0, 3, 4]).reshape([0, 2, 6]).model(),
]


@pytest.mark.parametrize("build", FIRES)
def test_one_is_left(build):
    """One Reshape for two, or none, measured at the real extents."""
    proto = build()
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 1
    back = len(model.nodes("Relu")) == 2  # at the shape it had
    assert [n.op for n in model.nodes() if n.op != "Relu"] == ([] if back else ["Reshape"])
    assert [(r.reference, r.difference) for r in ctx.rewrites] == [("onnxruntime", 0.0)]
    same_numbers(proto, model)


def test_three_in_a_row():
    """All of them become one."""
    proto = Net(x=X).reshape([-1]).reshape([3, 64]).reshape([1, 192]).model()
    model = read(proto)
    assert run_pass(NAME, model) == 2
    assert [n.op for n in model.nodes()] == ["Reshape"]
    same_numbers(proto, model)


def test_a_layer_is_as_if_nothing_had_been_reshaped():
    """An activation behind two that undo each other is fused into the layer before them."""

    def ops(*shapes: list[int]) -> list[str]:
        net = Net(x=X).conv("x", (4, 3, 3, 3), pads=[1] * 4)
        for dims in shapes:
            net.reshape(dims)
        made = npuconv.convert(net.op("Relu").conv("", (2, 4, 1, 1)).model()).model
        return [node.op_type for node in made.graph.node]

    assert ops([-1], [1, 4, 8, 8]) == ops()
