"""Tests of fold-pad."""

from __future__ import annotations

import numpy as np
import pytest

from support.asserts import context, read, refusals, run_pass, same_numbers
from support.builders import Net

NAME = "fold-pad"
AROUND = [0, 0, 1, 2, 0, 0, 0, 3]
BOTH = [0, 1, 1, 2, 0, 0, 0, 3]


def image(**options: int) -> Net:
    return Net(**options, x=(1, 3, 8, 8))


def pooled(kernel: int, **attrs: object) -> Net:
    """A pool that counts padded cells."""
    net = image().pad([0, 0, 1, 1, 0, 0, 1, 1])
    return net.op("AveragePool", kernel_shape=[kernel] * 2, count_include_pad=1, **attrs)


def pad18() -> Net:
    """A Pad that names its axes, from the end."""
    net = image(opset=18)
    net.op("Pad", "x", net.constant(np.array([1, 2])), "", net.constant(np.array([-1])))
    return net.conv()


def several(*others: str) -> Net:
    """A padded tensor that a convolution and these operators read."""
    net = image().pad(AROUND)
    padded = net.last
    net.conv(padded, name="first").output()
    for op in others:
        attrs = {"kernel_shape": [2, 2]} if op == "MaxPool" else {}
        if op == "Conv":
            net.conv(padded, name="second").output()
        else:
            net.op(op, padded, name=op.lower(), **attrs).output()
    return net


def widened(**attrs: object) -> Net:
    """A pool that counts padded cells, after a Pad of channels too."""
    net = image().pad([0, 2, 1, 1, 0, 0, 1, 1])
    return net.op("AveragePool", kernel_shape=[3, 3], **{"count_include_pad": 1, **attrs})


def two_readers(second: str) -> Net:
    """A convolution and another operator read what is padded."""
    net = image().pad(BOTH)
    padded = net.last
    return net.conv(padded, (2, 4, 3, 3)).output().op(second, padded, name="second").output()


def output_too() -> Net:
    """The padded tensor is an output of the model."""
    net = image().pad(BOTH).output()
    return net.conv(weight=(2, 4, 3, 3)).output()


FIRES = [
    lambda: image().pad(AROUND).conv().model(),
    lambda: image().pad(AROUND).conv(pads=[1, 1, 1, 1], strides=[2, 2]).model(),
    lambda: image(opset=10).op("Pad", pads=AROUND).conv().model(),
    lambda: pad18().model(),
    lambda: pooled(3).model(),
    lambda: several("Conv").model(),
    lambda: several("MaxPool", "Neg").model(),
    lambda: Net(x=("N", 3, "H", "W")).pad(AROUND).conv().model(),
    lambda: Net(x=(1, 3, 9)).pad([0, 0, 1, 0, 0, 2]).conv(weight=(2, 3, 3)).model(),
    lambda: image().pad(BOTH).conv(weight=(2, 4, 3, 3)).model(),
    lambda: image().pad([1, 0, 0, 1, 0, 0, 0, 1]).conv().model(),
    lambda: Net(x=(1, 3, 9)).pad([0, 1, 1, 0, 0, 2]).conv(weight=(2, 4, 3)).model(),
    lambda: widened().model(),
]
SILENT = [
    lambda: image().pad([0, 1, 0, 0, 0, 0, 0, 0]).conv(weight=(2, 4, 3, 3)).model(),
    lambda: image().pad(BOTH, 1.0).conv(weight=(2, 4, 3, 3)).model(),
    lambda: image().pad(BOTH).op("Relu").model(),
    lambda: image(opset=10).op("Pad", pads=BOTH).conv(weight=(2, 4, 3, 3)).model(),
    lambda: two_readers("Relu").model(),
    lambda: output_too().model(),
    lambda: widened(count_include_pad=0).model(),
    lambda: image().conv().model(),
    lambda: image().pad(AROUND).op("MaxPool", kernel_shape=[4, 4]).model(),
    lambda: image().pad(AROUND, 1.5).conv().model(),
    lambda: image().pad([0, 0, 2, 2, 0, 0, -1, 0]).conv().model(),
]


def test_the_pads_add_up():
    """Own pads of the convolution are kept, and it has the origin of the Pad too."""
    proto = FIRES[1]()
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 1
    (conv,) = model.nodes()
    assert conv.attrs["pads"] == [2, 3, 1, 4]
    assert model.origin(conv) == ("conv1", "pad0")
    assert ctx.rewrites[0].before == "Pad [1, 2, 0, 3] before pads=[1, 1, 1, 1]"
    same_numbers(proto, model)


@pytest.mark.parametrize(
    ("build", "pads"), [(FIRES[2], [1, 2, 0, 3]), (pad18, [0, 1, 0, 2]), (FIRES[8], [1, 2])]
)
def test_every_form_of_pad(build, pads):
    """Pad-2 has an attribute, Pad-11 an input, Pad-18 axes."""
    made = build()
    model = read(made.model() if isinstance(made, Net) else made)
    assert run_pass(NAME, model) == 1
    assert [(n.op, n.attrs["pads"]) for n in model.nodes()] == [("Conv", pads)]


def test_two_convolutions_take_it_each():
    """No Pad is left."""
    proto = several("Conv").model()
    model = read(proto)
    assert run_pass(NAME, model) == 2
    assert [n.op for n in model.nodes()] == ["Conv", "Conv"]
    same_numbers(proto, model)


def test_it_stays_for_those_that_cannot_take_it():
    """The convolution takes it; the others are named."""
    proto = several("MaxPool", "Neg").model()
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 1
    assert sorted(n.op for n in model.nodes()) == ["Conv", "MaxPool", "Neg", "Pad"]
    assert [r.reason for r in ctx.refusals] == [
        "'maxpool' (MaxPool) cannot take pads",
        "'neg' (Neg) cannot take pads",
    ]
    same_numbers(proto, model)


@pytest.mark.parametrize(
    ("pads", "value", "attrs", "reason"),
    [
        (AROUND, 1.5, {}, "it fills with another value, not with constant 0"),
        (AROUND, None, {"mode": "reflect"}, "it fills with mode 'reflect', not with constant 0"),
        (AROUND, None, {"mode": "edge"}, "it fills with mode 'edge', not with constant 0"),
        ([0, 0, 2, 0, 0, 0, -1, 0], 0.0, {}, "it crops (negative pads)"),
        ([1, 0, 0, 0, 0, 0, 0, 0], 0.0, {}, "it pads batch or channels"),
    ],
)
def test_pads_that_are_no_zeros_around_an_image(pads, value, attrs, reason):
    """Other Pads stay, and say why."""
    assert refusals(NAME, image().pad(pads, value, **attrs).conv()) == [("pad0", reason)]


def test_pads_of_channels():
    """The convolution reads the added channels."""
    net = image().pad([0, 1, 0, 0, 0, 0, 0, 0]).conv(weight=(4, 4, 3, 3))
    assert refusals(NAME, net) == [("pad0", "it pads batch or channels")]


@pytest.mark.parametrize(
    ("build", "ops", "pads"),
    [(FIRES[9], ["Pad", "Conv"], [1, 2, 0, 3]), (widened, ["Pad", "AveragePool"], [1, 1, 1, 1])],
)
def test_a_pad_of_channels_is_left(build, ops, pads):
    """The pads around the image are folded, and those of channels stay."""
    example = build()
    proto = example.model() if isinstance(example, Net) else example
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 1
    assert [n.op for n in model.nodes()] == ops
    assert model.nodes()[-1].attrs["pads"] == pads
    assert ctx.rewrites[0].reference == "onnxruntime"
    same_numbers(proto, model)


def test_two_convolutions_share_the_pad_of_channels():
    net = image().pad(BOTH)
    padded = net.last
    for _ in range(2):
        net.conv(padded, (2, 4, 3, 3)).output()
    model = read(net.model())
    assert run_pass(NAME, model) == 2
    assert [n.op for n in model.nodes()] == ["Pad", "Conv", "Conv"]
    same_numbers(net.model(), model)


@pytest.mark.parametrize(
    ("net", "reason"),
    [
        (two_readers("Relu"), "'second' cannot take pads"),
        (output_too(), "is an output of the model"),
        (widened(count_include_pad=0), "'averagepool1' does not count padded cells"),
    ],
)
def test_a_pad_of_channels_and_image_that_stays_whole(net, reason):
    """Another Pad of the same amounts would be needed beside it."""
    assert refusals(NAME, net) == [("pad0", f"it pads batch or channels too, and {reason}")]


def test_amounts_computed_at_run_time():
    """Computed amounts are unknown here."""
    net = image()
    net.inputs += Net(a=(8,)).inputs
    net.inputs[1].type.tensor_type.elem_type = 7
    net.op("Pad", "x", "a", name="pad").conv()
    assert refusals(NAME, net) == [("pad", "its amounts are computed at run time")]


@pytest.mark.parametrize(
    ("net", "reason"),
    [
        (pooled(1), "would have pads as large as its kernel"),
        (pooled(2, pads=[1, 1, 1, 1]), "would have pads as large as its kernel"),
        (pooled(3, ceil_mode=1), "rounds its extent up"),
    ],
)
def test_pools_that_cannot_take_it(net, reason):
    """onnxruntime refuses a pool whose pads are as large as its kernel."""
    assert refusals(NAME, net) == [("pad0", f"'averagepool1' (AveragePool) {reason}")]


def test_a_pool_that_does_not_count_padded_cells():
    """Its average is over fewer cells at the edge."""
    net = image().pad(AROUND).op("AveragePool", kernel_shape=[4, 4])
    assert refusals(NAME, net) == [
        ("pad0", "'averagepool1' (AveragePool) does not count padded cells")
    ]


def test_auto_pad_comes_first():
    """SAME depends on the padded extent."""
    net = image().pad(AROUND).conv(auto_pad="SAME_UPPER")
    assert refusals(NAME, net) == [("pad0", "'conv1' (Conv) still has auto_pad=SAME_UPPER")]


def test_a_pad_of_a_weight_stays():
    """A convolution that reads it as its weight has no such pads."""
    net = Net(x=(1, 3, 8, 8), w=(4, 3, 3, 3))
    net.op("Pad", "w", net.constant(np.array([0, 0, 1, 1, 0, 0, 1, 1]))).op("Conv", "x", "t0")
    assert refusals(NAME, net) == [("pad0", "'conv1' (Conv) reads it as a weight")]


def test_a_convolution_of_another_domain_is_none():
    """Its axes may be in another order."""
    net = image().pad(AROUND)
    net.op("Conv", net.last, net.random(4, 3, 3, 3), domain="com.ms.internal.nhwc")
    assert refusals(NAME, net) == []
