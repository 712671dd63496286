"""Tests of compose-layout: shuffles of channels, then Reshapes."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from npuconv.config import Options
from npuconv.model import query
from support.asserts import Passes, builtin, context, read, refusals, run_pass, same_numbers
from support.builders import Net

NAME = "compose-layout"
RKNN = builtin("rknn")  # lists Reshape, and none of those that are one


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
    # The first of three is read by others, too, and stays.
    lambda: shuffle().output("t0", "t2").model(),
]
SILENT = [
    # Pixels move, too.
    lambda: Net(x=(1, 12, 4, 4)).reshape([1, 4, 12, 4]).op("Relu").model(),
    lambda: Net(x=(1, 12, 4, 4)).reshape([1, 12, 2, 8]).op("Relu").model(),
    # What lies between is read by others.
    lambda: shuffle().op("Relu", "t1", to="z").output("t2", "z").model(),
    # Also from inside an If.
    lambda: (
        shuffle()
        .branch(Net().op("Relu", "t1", to="u"), Net().op("Neg", "t1", to="v"))
        .op("Relu")
        .model()
    ),
    # Samples change places.
    lambda: Net(x=(2, 2, 5, 5)).op("Transpose", perm=[1, 0, 2, 3]).model(),
]


ODD = [
    # Nothing at all, before or behind.
    Net(x=(1, 12, 0, 5)).reshape([1, 12, 0, 5]).op("Relu"),
    Net(x=(0, 12, 5, 5)).reshape([0, 2, 6, 5, 5]).op("Transpose", perm=[0, 2, 1, 3, 4]),
    Net(x=(1, 1, 1)).reshape([]).reshape([1, 1, 1]).op("Relu"),
    Net(x=(0, 12)).reshape([0, 3, 4]).reshape([0, 2, 6]),
]


@pytest.mark.parametrize("net", ODD)
def test_tensors_without_values_or_axes(net: Net):
    """Empty and scalar tensors have nothing to shuffle, and nothing breaks."""
    model, passes = read(net.model()), context()
    run_pass(NAME, model, passes)
    assert not model.nodes("Gather")
    assert not any(record.max_abs_difference for record in passes.rewrites)


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
    assert (record.reference, record.max_abs_difference) == ("onnxruntime", 0.0)
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


X = (1, 3, 8, 8)


def squeezed(net: Net, op: str, *axes: int) -> Net:
    """Append a Squeeze or Unsqueeze."""
    return net.op(op, net.last, net.constant(np.asarray(axes, np.int64)))


def read_twice() -> Net:
    """Build a net in which the tensor between the two is an output."""
    net = Net(x=X).reshape([1, 24, 8])
    between = net.last
    return net.reshape([1, 8, 24]).op("Neg", between, to="n").output("n", "t1", between)


def swapped_twice() -> Net:
    """Transposes on both sides of heads that are put apart and together."""
    net = Net(x=(1, 12, 5)).op("Transpose", perm=[0, 2, 1]).reshape([1, 5, 3, 4])
    return net.op("Transpose", perm=[0, 2, 3, 1]).op("Relu")


RESHAPES = [
    lambda: Net(x=X).op("Relu").reshape([-1]).reshape([1, 3, 8, 8]).op("Relu").model(),
    lambda: Net(x=X).reshape([1, 24, 8]).op("Flatten").model(),
    lambda: Net(x=("N", 12)).reshape([-1, 3, 4]).reshape([-1, 2, 6]).model(),
    lambda: Net(x=("N", 12)).reshape([-1, 3, 4]).reshape([0, 2, 6]).model(),
    lambda: squeezed(Net(x=X).reshape([1, 1, 24, 8]), "Squeeze", 1).op("Relu").model(),
    lambda: squeezed(Net(x=X), "Unsqueeze", 2).reshape([1, 24, 8]).model(),
    # A Transpose of axes of which only one is longer than 1.
    lambda: Net(x=(1, 8, 1)).op("Transpose", perm=[0, 2, 1]).reshape([8]).op("Relu").model(),
]
TO_ITS_OWN_SHAPE = [
    lambda: Net(x=(1, 3, 16, 16)).reshape([1, 3, 16, 16]).op("Relu").model(),
    lambda: Net(x=(1, 3, 8, 8)).op("Relu").reshape([0, -1, 8, 8]).model(),
    lambda: Net(x=(2, 12)).op("Flatten").op("Relu").model(),
    lambda: Net(x=("N", 12)).op("Flatten").op("Relu").model(),
    lambda: Net(x=(2, 2, 5, 5)).op("Relu").reshape([2, 2, 5, 5]).model(),
]
BETWEEN_AN_INPUT_AND_AN_OUTPUT = Net(x=(1, 12)).op("Flatten")
FIRES += [
    *RESHAPES,
    *TO_ITS_OWN_SHAPE,
    lambda: swapped_twice().model(),
    # One group after the other is the order there was.
    lambda: Net(x=(1, 12, 5, 5)).reshape([1, 2, 6, 5, 5]).reshape([1, 12, 5, 5]).op("Relu").model(),
    lambda: Net(x=("N", 4, "H", "W")).op("Transpose").op("Transpose").op("Relu").model(),
    lambda: squeezed(squeezed(Net(x=X), "Unsqueeze", 2), "Squeeze", 2).op("Relu").model(),
]
SILENT += [
    lambda: read_twice().model(),
    lambda: Net(x=X).reshape([1, 24, 8]).op("Relu").reshape([1, 8, 24]).model(),
    lambda: Net(x=(1, 3, 8, 8)).reshape([1, 8, 3, 8]).op("Relu").model(),
    lambda: Net(x=("N", 3)).reshape([2, 3]).op("Relu").model(),
    lambda: BETWEEN_AN_INPUT_AND_AN_OUTPUT.model(),
]


@pytest.mark.parametrize("build", RESHAPES)
def test_one_is_left(build):
    """One Reshape for two, or none, measured at the real extents."""
    proto = build()
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 1
    back = len(model.nodes("Relu")) == 2  # at the shape it had
    assert [n.op for n in model.nodes() if n.op != "Relu"] == ([] if back else ["Reshape"])
    assert [(r.reference, r.max_abs_difference) for r in ctx.rewrites] == [("onnxruntime", 0.0)]
    same_numbers(proto, model)


@pytest.mark.parametrize("build", TO_ITS_OWN_SHAPE)
def test_none_is_left(build):
    """Only the neighbour; also at extents larger than what others are measured at."""
    proto = build()
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 1
    assert [n.op for n in model.nodes()] == ["Relu"]
    (record,) = ctx.rewrites
    assert (record.reference, record.max_abs_difference) == ("onnxruntime", 0.0)
    assert record.after == "nothing"
    same_numbers(proto, model)


def test_it_stays_between_an_input_and_an_output():
    """An input that is an output needs a node that copies."""
    assert [node for node, _ in refusals(NAME, BETWEEN_AN_INPUT_AND_AN_OUTPUT)] == ["flatten0"]


def test_three_in_a_row():
    """All of them become one."""
    proto = Net(x=X).reshape([-1]).reshape([3, 64]).reshape([1, 192]).model()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    assert [n.op for n in model.nodes()] == ["Reshape"]
    same_numbers(proto, model)


def test_heads_are_put_apart_without_a_transpose():
    """The axes end in the order that they had."""
    proto = swapped_twice().model()
    model = read(proto)
    run_pass(NAME, model)
    assert [n.op for n in model.nodes()] == ["Reshape", "Relu"]
    same_numbers(proto, model)


@pytest.mark.parametrize("target", ["npu-int8", "rknn"])
def test_the_target_takes_what_is_left(target: str):
    """A Transpose of rank 4 for one of rank 3, if the target lists the former only."""
    net = Net(x=(1, 6, 8)).op("Transpose", perm=[0, 2, 1])
    proto = squeezed(net, "Unsqueeze", 2).op("Relu").model()
    model, ctx = read(proto), context()
    ctx.target = builtin(target)
    assert run_pass(NAME, model, ctx) == (target == "rknn")
    (node,) = model.nodes("Transpose")
    assert len(node.attrs["perm"]) == (4 if target == "rknn" else 3)
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


def squeeze(shape=(1, 4, 1, 1)):
    return squeezed(Net(x=shape), "Squeeze", 2, 3).model()


def unsqueeze(shape=(2, 4)):
    return squeezed(Net(x=shape), "Unsqueeze", 2, 3).model()


def flatten(shape=(1, 4, 3, 2)):
    return Net(x=shape).op("Flatten").model()


FIRES += [
    (squeeze, RKNN),
    (unsqueeze, RKNN),
    (flatten, RKNN),
    (lambda: squeeze(("n", 4, 1, 1)), RKNN),
    (lambda: flatten(("n", 4, 3, 2)), RKNN),
    (lambda: squeeze((1, "c", 1, 1)), RKNN),
]
SILENT += [
    squeeze,  # the target lists neither
    (squeeze, builtin("ethos-u55")),  # and this one both
    (lambda: squeeze(("n", "c", 1, 1)), builtin("ethos-u55")),
]


def test_an_extent_without_a_number():
    """The Reshape computes it from the others."""
    model = read(flatten(("n", 4, 3, 2)))
    assert run_pass(NAME, model, Passes(RKNN, Options())) == 1
    (node,) = model.nodes()
    shape = query.constant_input(node, 1)
    assert shape is not None
    assert (node.op, shape.tolist()) == ("Reshape", [-1, 24])


def transposed_twice(*, named: bool = False) -> Net:
    """Two equal Transposes of one tensor."""
    net = Net(x=(1, 4, 8)).op("Transpose", perm=[0, 2, 1], to="a")
    net.op("Transpose", "x", perm=[0, 2, 1], to="b")
    net.op("Relu", "a", to="r").op("Neg", "b", to="n")
    return net.output("a", "b", "r", "n") if named else net.output("r", "n")


def test_equal_nodes_are_merged():
    """Both consumers read one tensor; the rewrite is measured."""
    proto = transposed_twice().model()
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 1
    assert len(model.nodes("Transpose")) == 1
    assert [(r.reference, r.max_abs_difference) for r in ctx.rewrites] == [("onnxruntime", 0.0)]
    same_numbers(proto, model)


def test_outputs_of_the_model_are_not_merged():
    """Each output keeps its name."""
    proto = transposed_twice(named=True).model()
    model = read(proto)
    assert run_pass(NAME, model) == 0
    same_numbers(proto, model)
