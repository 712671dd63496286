"""Tests of rewrite-shuffle-as-gather."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from support.asserts import context, read, run_pass, same_numbers
from support.builders import Net

NAME = "rewrite-shuffle-as-gather"


def shuffle(batch: int | str = 1, groups: int = 2) -> Net:
    """Build PyTorch's channel shuffle: [N, g, C/g, H, W], transposed."""
    net = Net(x=(batch, 12, 5, 5)).reshape([-1, groups, 12 // groups, 5, 5])
    net = net.op("Transpose", perm=[0, 2, 1, 3, 4])
    return net.reshape([-1, 12, 5, 5])


def halves() -> Net:
    """The two halves of what is shuffled, taken apart by Gathers: even channels and odd."""
    net = Net(x=(1, 12, 5, 5)).reshape([6, 2, 25]).op("Transpose", perm=[1, 0, 2])
    net = net.reshape([2, 1, 6, 5, 5])
    for name, index in (("even", 0), ("odd", -1)):
        net.op("Gather", "t2", net.constant(np.asarray(index, np.int64)), to=name, axis=0)
    return net.output("even", "odd")


def inner(prefix: str) -> Net:
    """The rest of a shuffle, in a branch."""
    net = Net(prefix=prefix).op("Transpose", "t0", perm=[0, 2, 1, 3, 4])
    return net.reshape([1, 12, 5, 5])


FIRES = [
    lambda: shuffle().op("Relu").model(),
    lambda: shuffle(groups=3).op("Relu").model(),
    lambda: shuffle("N").op("Relu").model(),
    lambda: shuffle(2).model(),
    lambda: halves().model(),
]
SILENT = [
    # One group after the other is the order there was: other passes see to that.
    lambda: Net(x=(1, 12, 5, 5)).reshape([1, 2, 6, 5, 5]).reshape([1, 12, 5, 5]).op("Relu").model(),
    # Pixels move, too.
    lambda: Net(x=(1, 12, 4, 4)).reshape([1, 4, 12, 4]).op("Relu").model(),
    lambda: Net(x=(1, 12, 4, 4)).reshape([1, 12, 2, 8]).op("Relu").model(),
    # What lies between is read by others.
    lambda: shuffle().op("Relu", "t1", to="z").output("t2", "z").model(),
    lambda: shuffle().output("t0", "t2").model(),
    # Also from inside an If.
    lambda: (
        shuffle()
        .branch(Net().op("Relu", "t1", to="u"), Net().op("Neg", "t1", to="v"))
        .op("Relu")
        .model()
    ),
    # Samples change places.
    lambda: Net(x=(2, 2, 5, 5)).op("Transpose", perm=[1, 0, 2, 3]).reshape([2, 2, 5, 5]).model(),
]


ODD = [
    # Nothing at all, before or behind.
    Net(x=(1, 12, 0, 5)).reshape([1, 12, 0, 5]).op("Relu"),
    Net(x=(0, 12, 5, 5)).reshape([0, 2, 6, 5, 5]).op("Transpose", perm=[0, 2, 1, 3, 4]),
    Net(x=(1, 1, 1)).reshape([]).reshape([1, 1, 1]).op("Relu"),
]


@pytest.mark.parametrize("net", ODD)
def test_tensors_without_values_or_axes(net: Net):
    """Empty and scalar tensors have nothing to shuffle, and nothing breaks."""
    proto = net.model()
    assert run_pass(NAME, read(proto), context()) == 0


def test_no_channels_are_chosen():
    """A Gather of none leaves nothing to follow."""
    net = Net(x=(1, 12, 5, 5)).reshape([1, 2, 6, 5, 5])
    net.op("Gather", "t0", net.constant(np.zeros(0, np.int64)), axis=2)
    assert run_pass(NAME, read(net.reshape([1, 0, 5, 5]).op("Relu").model()), context()) == 0


@pytest.mark.parametrize(
    ("op", "attrs"), [("Transpose", {"perm": [0, 2]}), ("Gather", {"axis": 9})]
)
def test_shapes_that_are_not_true(op: str, attrs: dict):
    """A file may state a shape for what cannot be run."""
    net = Net(x=(1, 12, 5, 5)).reshape([1, 2, 6, 5, 5])
    more = [net.constant(np.asarray(0, np.int64))] if op == "Gather" else []
    proto = net.op(op, "t0", *more, **attrs).reshape([1, 12, 5, 5]).op("Relu").model()
    model = read(proto)
    (node,) = model.nodes(op)
    node.outputs[0].shape = [1, 6, 2, 5, 5]
    assert run_pass(NAME, model, context()) == 0


def test_the_rest_in_branches():
    """An If whose shapes are known keeps a shuffle in its branches."""
    net = Net(x=(1, 12, 5, 5)).reshape([1, 2, 6, 5, 5])
    net.last = "x"  # so that nothing else reads what the branches read
    model = read(net.branch(inner("a"), inner("b")).model())
    for node, path in model.walk():
        if path:
            dims = [1, 6, 2, 5, 5] if node.op == "Transpose" else [1, 12, 5, 5]
            node.outputs[0].shape = dims
    assert run_pass(NAME, model, context()) == 0


@pytest.mark.parametrize(
    ("groups", "order"),
    [(2, [0, 6, 1, 7, 2, 8, 3, 9, 4, 10, 5, 11]), (3, [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11])],
)
def test_what_is_left(groups: int, order: list[int]):
    """One node, whose result has the name it had."""
    proto = shuffle(groups=groups).model()
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 1
    (gather,) = model.nodes()
    assert (gather.op, gather.attrs) == ("Gather", {"axis": 1})
    assert list(gather.inputs[1].values) == order
    assert [t.name for t in model.graph.outputs] == [t.name for t in proto.graph.output]
    (record,) = ctx.rewrites
    assert (record.before, record.after) == ("Reshape + Transpose", "Gather")
    assert (record.reference, record.difference) == ("onnxruntime", 0.0)
    same_numbers(proto, model)


def test_halves():
    """Each is a Gather of its own, and what lay between is gone."""
    proto = halves().model()
    model = read(proto)
    assert run_pass(NAME, model, context()) == 1
    chosen = {n.outputs[0].name: list(n.inputs[1].values) for n in model.nodes()}
    assert chosen == {"even": [0, 2, 4, 6, 8, 10], "odd": [1, 3, 5, 7, 9, 11]}
    same_numbers(proto, model)


def test_channels_keep_their_scales():
    """A Reshape across channels would give all channels one scale."""
    loud = np.float32(np.logspace(-2, 2, 12).reshape(1, 12, 1, 1))
    net = Net(x=(1, 12, 5, 5))
    net.op("Conv", "x", net.constant(np.eye(12).reshape(12, 12, 1, 1)), to="made")
    net = net.reshape([1, 2, 6, 5, 5]).op("Transpose", perm=[0, 2, 1, 3, 4]).reshape([1, 12, 5, 5])
    net.conv("", (4, 12, 1, 1), to="y")
    samples = {"x": np.random.default_rng(0).normal(0, 1, (40, 12, 5, 5)).astype(np.float32) * loud}
    report = npuconv.convert(net.model(), calibration=samples, ignore=["OPS"]).report
    (made,) = [t for t in report.quantization.tensors if t.name == "made"]
    assert made.channels == 12
    assert made.scale > 4 * made.smallest_scale
