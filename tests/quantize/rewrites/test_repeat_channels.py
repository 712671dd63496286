"""Tests of repeat-channels."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.model import query
from npuconv.model.core import Model
from npuconv.partition.placement import make_plan
from npuconv.quantize.rewrites.repeat_channels import RepeatedChannels
from support.asserts import Passes, apply_pass, context, read, same_numbers
from support.builders import Net

NAME = "repeat-channels"
TWICE = (0, 1, 2, 3, 1)  # of four channels, the second twice


def between() -> Net:
    """Made and mixed on the device, with an activation in between."""
    net = Net(x=("N", 3, 8, 8)).conv("x", (4, 3, 3, 3), pads=[1] * 4, name="first", to="made")
    return net.op("Relu").conv("", (2, 4, 3, 3), name="mixed").op("Sigmoid").model()


def from_host() -> Net:
    """Made by the host, which reads it as well, and mixed by two layers."""
    net = Net(x=("N", 4, 8, 8)).op("Sigmoid", "x", to="made")
    net.conv("made", (2, 4, 1, 1), name="a").op("Tanh", to="ya")
    net.conv("made", (3, 4, 3, 3), pads=[1] * 4, name="b").op("Tanh", to="yb")
    return net.op("Exp", "made", to="yc").output("ya", "yb", "yc").model()


def to_host() -> Net:
    """Made on the device, mixed there, and read by the host: an output of the model."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 1, 1), name="first", to="made")
    return net.conv("made", (2, 4, 1, 1), name="mixed", to="y").output("made", "y").model()


def one_by_one() -> Net:
    """Build a depthwise path from the host to the host."""
    net = Net(x=("N", 4, 8, 8)).op("Sigmoid", "x", to="made")
    net.conv("made", (4, 1, 3, 3), group=4, pads=[1] * 4, name="deep")
    return net.op("Relu").op("Sigmoid").model()


FIRES = [between, from_host, to_host, one_by_one]
SILENT = [lambda: Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 1, 1), name="first").op("Relu").model()]


def changed(proto, index=TWICE, **others) -> tuple[Model, Passes, list[RepeatedChannels]]:
    model, ctx = read(proto), context()
    wanted = {"made": tuple(index), **others}
    found = apply_pass(NAME, model, ctx, plan=make_plan(model, ctx.target), indices=wanted)
    assert len(found) == len(wanted)
    same_numbers(proto, model)
    assert all(record.difference is not None for record in ctx.rewrites)
    return model, ctx, found


def weight(model: Model, name: str) -> np.ndarray:
    return query.constant_input(next(n for n in model.nodes() if n.name == name), 1)


@pytest.mark.parametrize("index", [TWICE, (0, 1, 2, 3, 0, 3, 3, 3)])
@pytest.mark.parametrize("example", FIRES)
def test_the_numbers_are_the_same(example, index):
    """Whoever makes the channels, whoever reads them, and however many copies there are."""
    changed(example(), index)


def test_a_row_and_a_column_more():
    """The copy is made like the channel, and both have half of what reads it."""
    old, (model, _, _) = read(between()), changed(between())
    assert weight(model, "first").shape == (5, 3, 3, 3)
    np.testing.assert_array_equal(weight(model, "first")[4], weight(old, "first")[1])
    np.testing.assert_array_equal(weight(model, "mixed")[:, 4], weight(old, "mixed")[:, 1] / 2)
    np.testing.assert_array_equal(weight(model, "mixed")[:, 1], weight(old, "mixed")[:, 1] / 2)
    np.testing.assert_array_equal(weight(model, "mixed")[:, 0], weight(old, "mixed")[:, 0])


def test_shapes_say_so():
    """Shapes are right, as costs of layers are read off them."""
    model, ctx, (one,) = changed(between())
    tensors = {t.name: t for node in model.nodes() for t in node.outputs}
    for name in one.path.tensors:
        assert query.shape(tensors[name]) == ("N", 5, 8, 8)
    (record,) = ctx.rewrites
    assert record.after == "1 more than 4 channels: copies of 1"


def test_only_the_device_reads_what_the_host_spreads():
    """The host goes on with the original channels."""
    model, _, (one,) = changed(from_host())
    assert next(n for n in model.nodes() if n.op == "Exp").inputs[0].name == "made"
    (name,) = one.path.tensors
    assert {n.inputs[0].name for n in model.nodes("Conv")} == {name}
    assert not one.shift.values.any()


def test_names_of_outputs_stay():
    """The mean takes the name; what the device makes gets another."""
    model, _, (one,) = changed(to_host())
    assert [t.name for t in model.graph.outputs] == ["made", "y"]
    assert one.old_names == {"made/channels": "made"}
    assert next(n for n in model.nodes("Conv") if n.name == "mixed").inputs[0].name != "made"


def test_groups_grow():
    """A convolution that reads channels one by one has a group for each."""
    model, _, (one,) = changed(one_by_one())
    (conv,) = model.nodes("Conv")
    assert query.attribute(conv, "group") == 5
    assert [query.shape(t)[1] for t in (conv.inputs[0], conv.outputs[0])] == [5, 5]
    assert one.path.between[0] is conv


def test_two_that_meet_in_one_layer():
    """The layer reads more channels and makes more."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 1, 1), name="first", to="made")
    net.conv("made", (4, 4, 1, 1), name="second", to="followed").op("Relu")
    proto = net.conv("", (2, 4, 1, 1), name="third").model()
    model, _, _ = changed(proto, followed=(0, 1, 2, 3, 0, 0))
    assert weight(model, "second").shape == (6, 5, 1, 1)


def test_what_mixes_channels_otherwise_is_left_alone():
    """Mixed channels have no path, so none is duplicated."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 1, 1), name="first", to="made")
    model, ctx = read(net.op("Concat", "made", "made", axis=2).model()), context()
    assert (
        apply_pass(NAME, model, ctx, plan=make_plan(model, ctx.target), indices={"made": TWICE})
        == []
    )


def test_nothing_is_made_again_unasked():
    """A budget decides; the pass does not."""
    model, ctx = read(between()), context()
    assert apply_pass(NAME, model, ctx, plan=make_plan(model, ctx.target), indices={}) == []
