"""What is known of operators with the channels last, without running them."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.model import nhwc
from npuconv.model.conv import window
from npuconv.model.facts import measure
from support.asserts import read
from support.builders import Net

X = (1, 8, 9, 3)


def node(op: str = "Conv", *, x=X, w=(4, 3, 3, 3), **attrs):
    """One operator of the domain."""
    net = Net(x=x)
    inputs = ["x", net.random(*w)] if op.startswith("Conv") else ["x"]
    model = read(net.op(op, *inputs, domain=nhwc.DOMAIN, **attrs).model())
    return model.nodes()[0]


@pytest.mark.parametrize("rank", [3, 4, 5])
def test_there_and_back(rank):
    """The two permutations undo each other, for any number of axes."""
    dims = tuple(range(rank))
    assert nhwc.channels_last(nhwc.channels_first(dims)) == dims
    assert nhwc.channels_first(dims)[1] == rank - 1
    array = np.empty(tuple(range(2, rank + 2)))
    moved = array.transpose(nhwc.to_first(rank))
    assert moved.shape == np.moveaxis(array, -1, 1).shape
    assert moved.transpose(nhwc.to_last(rank)).shape == array.shape


def test_facts_have_the_order_of_onnx():
    """Height 8, width 9, 3 channels, in whatever order they lie."""
    facts = measure(node(strides=[2, 1]))
    wanted = {"in_n": 1, "in_c": 3, "in_h": 8, "in_w": 9, "out_c": 4, "layout": "nhwc"}
    assert {name: facts[name] for name in wanted} == wanted
    assert window(node()).input == (1, 3, 8, 9)


def test_a_foreign_convolution_is_not_measured():
    """Nobody knows where its channels are."""
    foreign = node()
    foreign.domain = "org.example"
    assert window(foreign) is None
    assert measure(foreign) == {}


def test_what_can_be_rewritten():
    """Every operator, every activation with as many parameters as it has."""
    for op in nhwc.OPERATORS:
        w = (3, 4, 3, 3) if op == "ConvTranspose" else (4, 3, 3, 3)
        attrs = {"kernel_shape": [3, 3]} if op in ("MaxPool", "AveragePool") else {}
        for name, parameters in nhwc.ACTIVATIONS.items():
            values = {"activation_params": [0.5] * len(parameters)} if parameters else {}
            assert nhwc.obstacle(node(op, w=w, activation=name, **values, **attrs), 17) == ""


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: node("BatchNormalization"), "no more than Conv, ConvTranspose"),
        (lambda: node(activation="Gelu"), "its activation is 'Gelu', none of Relu"),
        (lambda: node(activation="Clip"), "activation Clip takes 2 activation_params, not 0"),
        (
            lambda: node(activation="Relu", activation_params=[1.0]),
            "activation Relu takes 0 activation_params, not 1",
        ),
        (lambda: node(activation_params=[1.0]), "no activation takes 0 activation_params, not 1"),
        (lambda: node(x=(1, 3, 8, 8)), "its input has 8 channels, its weights take 3"),
        (lambda: node(x=(1, 8, 3)), "its input has 3 dimensions where 4 are needed"),
        (lambda: node(x=(1, 3), w=(4, 3)), "it has 2 dimensions, which leaves no spatial axis"),
        (lambda: node(strides=[2]), "strides has 1 values, but 2 spatial axes need 2"),
        (lambda: node(dilations=[0, 1]), "dilations is [0, 1]; no value may be that small"),
        (lambda: node(pads=[0, -1, 0, 0]), "pads is [0, -1, 0, 0]; no value may be that small"),
        (lambda: node(kernel_shape=[5, 3]), "kernel_shape is [5, 3] but the weights are"),
        (lambda: node(auto_pad="SAME"), "auto_pad is 'SAME'; ONNX has NOTSET"),
        (
            lambda: node(auto_pad="VALID", pads=[1, 1, 1, 1]),
            "auto_pad=VALID together with non-zero pads",
        ),
        (lambda: node("MaxPool"), "it has no kernel_shape"),
        (
            lambda: node("AveragePool", kernel_shape=[2, 2], dilations=[2, 2]),
            "AveragePool of opset 17 has no attribute 'dilations'",
        ),
        (
            lambda: node("MaxPool", kernel_shape=[2, 2], outputs=2),
            "the layout of its second output is not defined",
        ),
    ],
)
def test_what_cannot(build, reason):
    """The first reason, for people."""
    assert nhwc.obstacle(build(), 17).startswith(reason)


def test_a_later_opset_may_have_the_attribute():
    """Dilated average pools came with 19."""
    pool = node("AveragePool", kernel_shape=[2, 2], dilations=[2, 2])
    assert nhwc.obstacle(pool, 19) == ""


def test_weights_that_are_missing():
    """A Conv of one input is none."""
    lame = read(Net(x=X).op("Conv", "x", domain=nhwc.DOMAIN).model()).nodes()[0]
    assert nhwc.obstacle(lame, 17) == "an input that it needs is missing"


def test_an_unknown_rank():
    """Only a global pool has nothing else to tell it from."""
    pool = node("GlobalMaxPool")
    pool.inputs[0].shape = None
    assert nhwc.obstacle(pool, 17) == "the number of its dimensions is not known"
    conv = node()
    conv.inputs[0].shape = None
    assert nhwc.obstacle(conv, 17) == ""
