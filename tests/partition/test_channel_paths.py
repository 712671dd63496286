"""Paths of channels from where they are made to where they are mixed."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from npuconv.partition.channel_paths import ChannelPath, channel_paths, is_depthwise
from npuconv.partition.placement import make_plan
from support.asserts import builtin, read
from support.builders import Net
from support.outlier_nets import inverted

X = (1, 3, 8, 8)


def found(proto: onnx.ModelProto, maker: str = "first") -> ChannelPath | None:
    model = read(proto)
    plan = make_plan(model, builtin())
    own = [
        one for one in channel_paths(model, plan) if one.producer is not None and not one.outputs
    ]
    return next((one for one in own if one.producer.name == maker), None)


def made(**attrs) -> Net:
    return Net(x=X).conv("x", (4, 3, 3, 3), name="first", to="made", **attrs)


def mixed(net: Net) -> onnx.ModelProto:
    """The last result read by a convolution that mixes it."""
    return net.conv("", (2, 4, 1, 1), name="mixed").op("Sigmoid").model()


def ints(net: Net, *values: int) -> str:
    return net.constant(np.asarray(values, np.int64))


def test_it_goes_through_what_follows_each_channel():
    """Activations, and convolutions that make one channel of one."""
    own = found(inverted())
    assert [n.op for n in own.between] == ["Clip", "Conv", "Relu"]
    assert [n.name for n in own.row_layers] == ["first", "deep"]
    assert [n.name for n in own.readers] == ["mixed"]
    assert own.tensors[1:] == ["made", own.tensors[2], "followed"]


def test_it_goes_on_to_all_that_read_it():
    """Each of them mixes the channels in its own way."""
    net = made().op("Relu", to="r").conv("r", (2, 4, 1, 1), name="a", to="a")
    net.conv("r", (4, 1, 3, 3), group=4, name="b").conv("", (2, 4, 1, 1), name="c", to="c")
    own = found(net.op("Sigmoid", "a", to="p").op("Tanh", "c", to="q").output("p", "q").model())
    assert sorted(n.name for n in own.readers) == ["a", "c"]


@pytest.mark.parametrize(
    "between",
    [
        lambda net: net.op("MaxPool", kernel_shape=[2, 2], strides=[2, 2]),
        lambda net: net.pad([0, 0, 1, 1, 0, 0, 0, 0]),
        lambda net: net.op("Relu"),
    ],
)
def test_what_keeps_channels_apart(between):
    """Channels come out as they went in, each beside the same others."""
    net = made()
    between(net)
    assert found(mixed(net)) is not None


@pytest.mark.parametrize(
    "between",
    [
        lambda net: net.op("Sigmoid"),
        lambda net: net.pad([0, 0, 1, 1, 0, 0, 0, 0], value=1.0),
        lambda net: net.op("Concat", "made", "made", axis=2),
        lambda net: net.op("DepthToSpace", blocksize=1),
        lambda net: net.op("Gather", "made", ints(net, 3, 2, 1, 0), axis=1),
        lambda net: net.op("Relu").output("made", net.last),
        lambda net: net.conv("", (4, 2, 1, 1), group=2),
    ],
)
def test_what_does_not(between):
    """No path if the host reads the channels, or an operator rearranges or mixes them."""
    net = made()
    between(net)
    net.conv("", (2, 4, 1, 1), name="mixed").op("Sigmoid", to="end").output("end")
    assert found(net.model()) is None


def test_a_pad_of_channels_makes_more_of_them():
    """Channels behind such a Pad are others."""
    net = made().pad([0, 1, 0, 0, 0, 0, 0, 0])
    assert found(net.conv("", (2, 5, 1, 1)).op("Sigmoid").model()) is None


def test_its_maker_reads_all_channels():
    """A depthwise layer is inside of a path, or in none."""
    net = made().conv("", (4, 1, 3, 3), group=4, name="deep")
    assert found(mixed(net), "deep") is None


def test_nothing_reads_an_output():
    """The rest of the world does, which no pass may change."""
    assert found(made().model()) is None


def test_weights_are_constants():
    """Weights that come at run time cannot be reordered."""
    net = Net(x=X, w=(2, 4, 1, 1)).conv("x", (4, 3, 3, 3), name="first").op("Conv", "t0", "w")
    assert found(net.op("Sigmoid").model()) is None


def every(net: Net) -> dict[str, ChannelPath]:
    """Return all paths, by the first tensor."""
    model = read(net.model())
    return {own.tensor.name: own for own in channel_paths(model, make_plan(model, builtin()))}


def test_the_host_may_be_at_either_end():
    """Whoever makes the channels, and whoever reads them."""
    net = made().op("Sigmoid", to="s").conv("s", (2, 4, 1, 1), name="mixed", to="last")
    own = every(net.op("Tanh"))
    assert set(own) == {"x", "made", "s", "last"}
    assert own["made"].producer.name == "first"
    assert [end.name for end in own["made"].outputs] == ["made"]
    assert (own["s"].producer, own["s"].outputs) == (None, [])
    assert [conv.name for conv in own["s"].readers] == ["mixed"]
    assert own["x"].row_layers == []


def test_an_end_is_where_the_host_reads():
    """Host readers and outputs end a path, also if the device goes on; host results do not."""
    net = made().op("Relu", to="r").conv("r", (2, 4, 1, 1), name="mixed").op("Tanh", to="y")
    own = every(net.op("Exp", "r", to="e").op("Exp", "x", to="f").output("y", "e", "f", "r"))
    assert [end.name for end in own["made"].outputs] == ["r"]
    assert own["x"].outputs == []


def test_what_mixes_channels_otherwise_is_no_path():
    """Other operators of the device, and grouped readers, are no path."""
    own = every(made().op("Concat", "made", "made", axis=2).op("Tanh"))
    assert set(own) == {"x"}
    grouped = Net(x=X).op("Tanh", "x", to="t").conv("t", (3, 1, 1, 1), group=3, name="a", to="a")
    own = every(grouped.conv("t", (2, 3, 1, 1), name="b", to="b").op("Tanh", "a").op("Exp", "b"))
    assert [conv.name for conv in own["t"].row_layers] == ["a"]
    assert [conv.name for conv in own["t"].readers] == ["b"]


@pytest.mark.parametrize(("weight", "group", "apart"), [
    ((4, 1, 3, 3), 4, True),
    ((2, 2, 3, 3), 2, False),  # as many groups as results, but each reads two channels
    ((8, 1, 3, 3), 4, False),
    ((1, 4, 3, 3), 1, False),
])  # fmt: skip
def test_depthwise(weight, group, apart):
    """Every result is made of one channel of its own."""
    model = read(Net(x=(1, 4, 8, 8)).conv("x", weight, group=group).model())
    assert is_depthwise(model.nodes("Conv")[0]) == apart
