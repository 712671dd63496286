"""Queries on nodes and tensors."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuconv.model import core, edit, query
from support.asserts import read
from support.builders import Net


@pytest.fixture
def model():
    net = Net(x=("N", 3, 8, -1)).conv("x", (4, 3, 3, 3), bias=False)
    return read(net.op("Relu").op("Neg", "t0").output("t1", "t2").model())


def test_constants(model):
    """Weights have values; what nodes make has none."""
    conv = model.nodes("Conv")[0]
    assert query.is_constant(conv.inputs[1])
    assert not query.is_constant(conv.inputs[0])
    assert query.value(conv.inputs[1]).shape == (4, 3, 3, 3)
    assert query.value(conv.inputs[0]) is None
    assert query.value(None) is None


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        (
            {"value": numpy_helper.from_array(np.asarray([1, 2], np.int8))},
            np.asarray([1, 2], np.int8),
        ),
        ({"value_int": 3}, np.asarray(3, np.int64)),
        ({"value_ints": [3]}, np.asarray([3], np.int64)),
        ({"value_float": 0.5}, np.asarray(0.5, np.float32)),
        ({"value_floats": [0.5, 1.0]}, np.asarray([0.5, 1.0], np.float32)),
        ({"value_string": "a"}, None),
    ],
)
def test_constant_nodes(attributes, wanted):
    """Numbers have the type that ONNX gives them, in each of the attributes."""
    proto = Net(x=(1,)).op("Relu", "x").output("t0").model()
    proto.graph.node.append(helper.make_node("Constant", [], ["c"], name="c", **attributes))
    (node,) = read(proto).nodes("Constant")
    found = query.constant_of(node)
    assert (found is None) == (wanted is None)
    if wanted is not None:
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def test_inputs(model):
    """An input that is missing or has no name is omitted."""
    conv = model.nodes("Conv")[0]
    assert query.input_of(conv, 0) is conv.inputs[0]
    assert query.input_of(conv, 2) is None
    edit.set_input(conv, 3, edit.constant(model, "c", np.asarray([7.0])))
    assert query.input_of(conv, 2) is None
    assert query.scalar_input(conv, 3) == 7.0
    assert query.scalar_input(conv, 1) is None
    assert query.scalar_input(conv, 0) is None
    assert query.constant_input(conv, 9) is None


def test_neighbours(model):
    """Producer and consumers of a tensor; an output is also read by the user."""
    conv, relu, neg = model.nodes()
    out = conv.outputs[0]
    assert query.producer(out) is conv
    assert query.producer(model.graph.inputs[0]) is None
    assert query.consumers(out) == [relu, neg]
    assert query.sole_consumer(model, out) is None
    assert query.sole_consumer(model, model.graph.inputs[0]) is conv
    assert query.sole_consumer(model, relu.outputs[0]) is None


def test_an_output_with_one_reader():
    """An output has no sole consumer: the user reads it as well."""
    model = read(Net(x=(1, 4)).op("Relu").op("Neg").output("t0", "t1").model())
    assert query.sole_consumer(model, model.nodes()[0].outputs[0]) is None


def test_shapes(model):
    """Numbers are numbers, symbols are names, and anything below 1 is not known."""
    source = model.graph.inputs[0]
    assert query.shape(source) == ("N", 3, 8, None)
    assert query.static_shape(source) is None
    assert query.rank(source) == 4
    source.shape = [1, 0, "", 4]
    assert query.shape(source) == (1, None, None, 4)
    source.shape = [1, 3]
    assert query.static_shape(source) == (1, 3)
    assert query.shape(None) is query.rank(None) is query.static_shape(None) is None


def test_types(model):
    """numpy's name of a type, whichever way graph-surgeon keeps it."""
    tensor = model.graph.inputs[0]
    assert query.dtype_name(tensor) == "float32"
    tensor.dtype = np.int8
    assert query.dtype_name(tensor) == "int8"
    tensor.dtype = TensorProto.BFLOAT16  # graph-surgeon keeps ONNX's number
    assert query.dtype_name(tensor) == "bfloat16"
    tensor.dtype = None
    assert query.dtype_name(tensor) == query.dtype_name(None) == ""


def test_domains(model):
    """The standard domain has two names and is not shown."""
    relu = model.nodes("Relu")[0]
    assert query.is_standard(relu)
    assert query.qualified(relu) == "Relu"
    relu.domain = "ai.onnx"
    assert query.qualified(relu) == "Relu"
    relu.domain = "com.example"
    assert query.qualified(relu) == "com.example.Relu"
    assert query.attribute(relu, "alpha", 0.5) == 0.5
    core.sweep(model)  # as after every pass
    assert model.nodes("Relu", domain="com.example") == [relu]
    assert model.nodes("Relu") == []


IMAGE = (1, 3, 8, 8)
PADS = [0, 0, 1, 2, 0, 0, 3, 4]
PAIRS = ((0, 0), (0, 0), (1, 3), (2, 4))


def as_input(opset=17, value=0.0, axes=None, pads=PADS, **attrs):
    """Pad of opset 11 and later: amounts, value and axes are inputs."""
    net = Net(x=IMAGE, opset=opset).op("Relu")
    names = [net.last, net.constant(np.asarray(pads, np.int64))]
    names.append("" if value is None else net.constant(np.asarray(value, np.float32)))
    if axes is not None:
        names.append(net.constant(np.asarray(axes, np.int64)))
    return read(net.op("Pad", *names, **attrs).model()).nodes("Pad")[0]


def as_attribute(opset=2, **attrs):
    """Pad before opset 11: amounts are an attribute."""
    net = Net(x=IMAGE, opset=opset).op("Relu").op("Pad", **attrs)
    return read(net.model()).nodes("Pad")[0]


@pytest.mark.parametrize(
    "node",
    [
        as_input(),
        as_input(11),
        as_input(18, axes=[2, 3], pads=[1, 2, 3, 4]),
        as_input(18, axes=[-1, -2], pads=[2, 1, 4, 3]),
        as_attribute(pads=PADS),
        as_attribute(1, paddings=PADS),
    ],
    ids=["17", "11", "axes", "negative-axes", "attribute", "paddings"],
)
def test_amounts(node):
    """(begin, end) for every axis, however it is written."""
    assert query.pad_amounts(node) == PAIRS


def test_amounts_that_are_computed():
    """Computed amounts are unknown."""
    net = Net(x=IMAGE).op("Shape", "x").op("Concat", "t0", "t0", axis=0).op("Pad", "x", "t1")
    assert query.pad_amounts(read(net.model()).nodes("Pad")[0]) is None


def test_amounts_that_make_no_pairs():
    """An odd number of amounts is no list of pairs."""
    node = as_input()
    node.inputs[1].values = np.asarray([1, 2, 3])
    assert query.pad_amounts(node) is None


def test_axes_that_are_not_known():
    """Computed axes, or a tensor of unknown rank, leave the amounts open."""
    node = as_input(18, axes=[2, 3], pads=[1, 2, 3, 4])
    node.inputs[0].shape = None
    assert query.pad_amounts(node) is None
    two = Net(x=IMAGE, opset=18).op("Shape", "x").op("Size", "t0")
    two.op("Unsqueeze", "t1", two.constant(np.asarray([0], np.int64)))
    two.op("Pad", "x", two.constant(np.asarray([1, 1], np.int64)), "", "t2")
    assert query.pad_amounts(read(two.model()).nodes("Pad")[0]) is None


@pytest.mark.parametrize("axes", [[2], [2, 3, 1], [2, 9], [2, -5]])
def test_axes_that_do_not_fit(axes):
    """Another number of axes than of amounts, or one that the tensor does not have."""
    node = as_input(18, axes=[2, 3], pads=[1, 2, 3, 4])
    node.inputs[3].values = np.asarray(axes)
    assert query.pad_amounts(node) is None


@pytest.mark.parametrize(
    ("node", "mode", "fill"),
    [
        (as_input(value=1.5), "constant", 1.5),
        (as_input(value=None), "constant", 0.0),
        (as_attribute(pads=PADS, value=0.5), "constant", 0.5),
        (as_attribute(pads=PADS, mode="edge"), "edge", 0.0),
    ],
)
def test_mode_and_fill(node, mode, fill):
    """Written or left out."""
    assert (query.pad_mode(node), query.pad_fill(node)) == (mode, fill)


@pytest.mark.parametrize(
    ("node", "zero"),
    [
        (as_input(), True),
        (as_input(value=None), True),
        (as_input(value=1.0), False),
        (as_input(mode="reflect", value=None), False),
        (as_input(mode="edge", value=None), False),
        (as_attribute(pads=PADS), True),
        (as_attribute(pads=PADS, value=0.5), False),
    ],
)
def test_zero_fill(node, zero):
    """Only the constant 0 counts."""
    assert query.pads_with_zero(node) is zero


def test_a_fill_that_is_computed():
    """A computed fill value is not known to be 0."""
    net = Net(x=IMAGE).op("ReduceMax", "x", keepdims=0)
    net.op("Pad", "x", net.constant(np.asarray(PADS, np.int64)), "t0")
    assert not query.pads_with_zero(read(net.model()).nodes("Pad")[0])
