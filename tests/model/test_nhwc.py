"""Queries on operators with the channels last, integer and fused operators."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.model import nhwc
from npuconv.model.conv import window
from npuconv.model.facts import measure
from npuconv.model.nhwc import as_float
from npuconv.partition import costs
from support.asserts import read
from support.builders import Net, integer_conv

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
    """The axis of the channels is unknown."""
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
    """The first reason is given as text."""
    assert nhwc.obstacle(build(), 17).startswith(reason)


def test_a_later_opset_may_have_the_attribute():
    """Dilated average pools came with 19."""
    pool = node("AveragePool", kernel_shape=[2, 2], dilations=[2, 2])
    assert nhwc.obstacle(pool, 19) == ""


def test_weights_that_are_missing():
    """A Conv with one input is no Window."""
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


def node_of(net, op):
    return next(n for n in read(net.model()).nodes() if n.op == op)


def quantized(net, op, source, weight, **attrs):
    """Append an operator that takes scale and zero point behind each operand."""
    scale, zero = net.constant(np.float32(0.1)), net.constant(np.int8(0))
    values = net.constant(np.ones(weight, np.int8))
    return net.op(op, source, scale, zero, values, scale, zero, scale, zero, **attrs)


def test_qlinear_conv():
    """A convolution with its weight at input 3, and as many multiplications."""
    model = read(integer_conv(np.ones((6, 2, 3, 3), np.int8), group=2, strides=[2, 2]))
    (node,) = model.nodes("QLinearConv")
    view = as_float(node)
    assert (view.op, window(view).mode, window(view).weight) == ("Conv", "grouped", (6, 2, 3, 3))
    assert costs.macs(view) == 6 * 2 * 9 * 9
    assert costs.macs(node) == costs.macs(view)


def integers():
    """A graph whose tensor ``q`` is int8 [2, 5]."""
    net = Net(x=(2, 5))
    scale, zero = net.constant(np.float32(0.1)), net.constant(np.int8(0))
    return net.op("QuantizeLinear", "x", scale, zero, to="q")


def product(net, op):
    return costs.macs(as_float(node_of(net, op)))


def test_matrix_products():
    """Matrix products multiply like those of float models."""
    net = quantized(integers(), "QLinearMatMul", "q", (5, 7))
    assert product(net, "QLinearMatMul") == 70
    net = integers()
    net.op("MatMulInteger", "q", net.constant(np.ones((5, 7), np.int8)))
    assert product(net, "MatMulInteger") == 70
    net = quantized(integers(), "QGemm", "q", (7, 5), domain="com.microsoft", transB=1)
    node = node_of(net, "QGemm")
    node.outputs[0].shape = [2, 7]
    assert costs.macs(as_float(node)) == 70


@pytest.mark.parametrize(
    ("op", "domain", "attrs"),
    [
        ("QLinearConv", "com.microsoft", {"channels_last": 1}),
        ("NhwcFusedConv", "com.microsoft", {}),
        ("Conv", "com.ms.internal.nhwc", {}),
    ],
)
def test_channels_last(op, domain, attrs):
    """The view has the channels first, so the extents are those of the picture."""
    net = Net(x=(1, 8, 6, 4))
    if op == "QLinearConv":
        quantized(net, op, "x", (2, 4, 3, 3), domain=domain, **attrs)
    else:
        net.op(op, "x", net.random(2, 4, 3, 3), domain=domain, **attrs)
    node = node_of(net, op)
    node.outputs[0].shape = [1, 6, 4, 2]
    win = window(as_float(node))
    assert (win.input, win.output) == ((1, 4, 8, 6), (1, 2, 6, 4))
    assert win.macs == 2 * 4 * 9 * 24


def test_channels_first_of_a_foreign_domain():
    """Tensors stay as they are if channels_last is absent."""
    net = quantized(Net(x=(1, 4, 8, 8)), "QLinearConv", "x", (2, 4, 3, 3), domain="com.microsoft")
    node = node_of(net, "QLinearConv")
    assert as_float(node).inputs[0] is node.inputs[0]


def test_unknown_rank():
    """The channels cannot be moved if the rank is unknown."""
    net = Net(x=(1, 8, 6, 4)).op("Thing", domain="com.example")
    net.op("Conv", "t0", net.random(2, 4, 3, 3), domain="com.ms.internal.nhwc")
    assert window(as_float(node_of(net, "Conv"))).input is None


@pytest.mark.parametrize(
    "net",
    [
        Net(x=(1, 4, 8, 8)).conv("x", (2, 4, 3, 3)),
        Net(x=(1, 4, 8, 8)).op("Relu"),
        Net(x=(1, 4, 8, 8)).op("QLinearConv", domain="com.example"),
        Net(x=(1, 4, 8, 8)).op("FusedConv", domain="com.microsoft"),
    ],
)
def test_other_nodes_stay_what_they_are(net):
    """Float operators, foreign ones, and those that lack the weight they should have."""
    node = read(net.model()).nodes()[0] if net.domains else node_of(net, net.nodes[0].op_type)
    assert as_float(node) is node
