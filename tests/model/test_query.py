"""Questions about nodes and tensors."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

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


def test_inputs(model):
    """An input that is missing or has no name is none."""
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
    """Who makes a tensor and who reads it; an output is read by the user too."""
    conv, relu, neg = model.nodes()
    out = conv.outputs[0]
    assert query.producer(out) is conv
    assert query.producer(model.graph.inputs[0]) is None
    assert query.consumers(out) == [relu, neg]
    assert query.sole_consumer(model, out) is None
    assert query.sole_consumer(model, model.graph.inputs[0]) is conv
    assert query.sole_consumer(model, relu.outputs[0]) is None


def test_an_output_with_one_reader():
    """It has no sole consumer, because the user reads it as well."""
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
