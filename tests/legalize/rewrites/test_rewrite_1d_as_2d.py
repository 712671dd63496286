"""Tests of rewrite-1d-as-2d."""

from __future__ import annotations

import pytest

from npuconv.config import Options
from npuconv.legalize.registry import Phase
from npuconv.model.conv import window
from support.asserts import Passes, context, read, run_pass, same_numbers
from support.builders import Net
from support.target_files import chip

NAME = "rewrite-1d-as-2d"
X = (2, 4, 12)


def signal(weight=(6, 4, 3), x=X, **attrs) -> Net:
    return Net(x=x).conv("x", weight, **attrs)


def fed() -> Net:
    return Net(x=X, w=(6, 4, 3)).op("Conv", "x", "w")


def pooled(op: str, **attrs) -> Net:
    return signal().op(op, **attrs)


FIRES = [
    lambda: signal().model(),
    lambda: signal(pads=[1, 2], strides=[2], dilations=[2]).model(),
    lambda: signal((4, 2, 3), group=2, bias=False).model(),
    lambda: signal(auto_pad="SAME_UPPER", strides=[2], x=("N", 4, "W")).model(),
    lambda: signal((4, 3, 3), op="ConvTranspose", strides=[2], output_padding=[1]).model(),
    lambda: signal((4, 3, 3), op="ConvTranspose", strides=[2], output_shape=[25]).model(),
    lambda: fed().model(),
    lambda: pooled("MaxPool", kernel_shape=[2], strides=[2], pads=[1, 0]).model(),
    lambda: pooled("AveragePool", kernel_shape=[3], pads=[1, 1], count_include_pad=1).model(),
    lambda: pooled("LpPool", kernel_shape=[2]).model(),
    lambda: pooled("GlobalAveragePool").model(),
    lambda: pooled("GlobalMaxPool").model(),
]
SILENT = [
    lambda: Net(x=(1, 4, 8, 8)).conv("x", (4, 4, 3, 3)).model(),
    lambda: Net(x=X).op("MaxPool", kernel_shape=[2]).model(),
    lambda: Net(x=(1, 4, 6, 6, 6)).conv("x", (4, 4, 3, 3, 3)).model(),
    lambda: Net(opset=11, x=X).conv("x", (6, 4, 3)).model(),
    lambda: Net(x=X).op("GlobalAveragePool").model(),
]


def test_attributes_get_a_neutral_axis():
    """The kernel has one cell there, nothing is padded, nothing is skipped."""
    model = read(signal(pads=[1, 2], strides=[2], dilations=[2]).model())
    assert run_pass(NAME, model) == 1
    conv = model.nodes("Conv")[0]
    win = window(conv)
    assert (win.kernel, win.strides, win.dilations) == ((1, 3), (1, 2), (1, 2))
    assert win.pads == ((0, 0), (1, 2))
    assert win.input == (2, 4, 1, 12)
    assert [n.op for n in model.nodes()] == ["Unsqueeze", "Conv", "Squeeze"]


def test_one_unsqueeze_for_all_readers():
    """Readers of one tensor share its inserted axis."""
    net = Net(x=X)
    net.conv("x", (6, 4, 3), name="a").output()
    net.conv("x", (6, 4, 5), name="b").output()
    proto = net.model()
    model = read(proto)
    assert run_pass(NAME, model) == 2
    assert len(model.nodes("Unsqueeze")) == 1
    assert model.origin(model.nodes("Unsqueeze")[0]) == ("a", "b")
    same_numbers(proto, model)


def test_pools_follow_their_neighbours():
    """One behind a convolution, and one before."""
    net = Net(x=X).op("MaxPool", kernel_shape=[2]).conv("", (6, 4, 3))
    net.op("AveragePool", kernel_shape=[2])
    proto = net.model()
    model = read(proto)
    assert run_pass(NAME, model) == 3
    assert {len(n.attrs["kernel_shape"]) for n in model.nodes("MaxPool", "AveragePool")} == {2}
    same_numbers(proto, model)


def test_a_chain_has_one_at_each_end():
    """All passes together leave a Reshape at each end of the chain."""
    net = signal(auto_pad="SAME_UPPER").op("Relu").op("MaxPool", kernel_shape=[2])
    net.batchnorm(6).op("LeakyRelu", alpha=0.1).conv("", (6, 6, 3)).op("Sigmoid")
    proto = net.model()
    model, ctx = read(proto), context()
    for phase in (Phase.CANONICALIZE, Phase.LEGALIZE):
        ctx.run_phase(model, phase)
    names = [n.op for n in model.nodes()]
    assert (names.count("Unsqueeze"), names.count("Squeeze")) == (1, 1)
    assert names[0] == "Unsqueeze"
    same_numbers(proto, model)


@pytest.mark.parametrize("rank", [{"one_of": [3, 4]}, "?"])
def test_a_target_that_takes_rank_3_is_left_alone(rank):
    """A limit nobody has written down refuses nothing."""
    ctx = Passes(chip(rank=rank), Options())
    assert run_pass(NAME, read(signal().model()), ctx) == 0


def test_a_transposed_one_is_needed_in_2d():
    """A transposed one becomes a convolution and DepthToSpace, which has two axes."""
    ctx = Passes(chip(rank={"one_of": [3, 4]}), Options())
    proto = signal((4, 3, 3), op="ConvTranspose").model()
    assert run_pass(NAME, read(proto), ctx) == 1


def test_no_target_no_reason():
    """A target without Conv gains nothing."""
    assert run_pass(NAME, read(signal().model()), Passes(chip(""), Options())) == 0
