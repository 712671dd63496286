"""Forms of the written model: activations that the compiler merges into convolutions."""

from __future__ import annotations

from collections import Counter

import pytest

import npuconv
from support.builders import Net, images

SHAPE = (1, 8, 8, 8)
SAMPLES = {"x": images(16, *SHAPE[1:])}


def network(op, **attrs):
    """A convolution, an activation of it, and another convolution."""
    net = Net(x=SHAPE).conv("x", (8, 8, 3, 3), pads=[1] * 4, to="c")
    slope = (net.random(8, 1, 1),) if op == "PRelu" else ()
    return net.op(op, "c", *slope, to="a", **attrs).conv("a", (8, 8, 1, 1))


def reader_of_convolution(model):
    """Operator that reads the first convolution."""
    conv = next(node for node in model.graph.node if node.op_type == "Conv")
    return next(n.op_type for n in model.graph.node if conv.output[0] in n.input)


FUSED = ["PRelu", "LeakyRelu", "Elu", "Sigmoid", "Tanh"]


@pytest.mark.parametrize("op", FUSED)
def test_merged_activation_follows_its_convolution_without_conversions(op):
    """RKNN-Toolkit2 makes one operator of both."""
    result = npuconv.convert(network(op).model(), "rknn", calibration=SAMPLES)
    assert reader_of_convolution(result.model) == op
    counts = Counter(node.op_type for node in result.model.graph.node)
    assert counts["QuantizeLinear"] == 3  # input, activation, output
    assert [row.name for row in result.report.quantization.tensors] == ["x", "a", "t2"]


@pytest.mark.parametrize("op", FUSED)
def test_compiler_that_merges_none_reads_conversions(op):
    result = npuconv.convert(network(op).model(), "qnn-htp", calibration=SAMPLES)
    assert reader_of_convolution(result.model) == "QuantizeLinear"


def test_convolution_that_something_else_reads_is_stored():
    net = network("Sigmoid")
    model = net.op("Add", net.last, "c").model()
    result = npuconv.convert(model, "rknn", calibration=SAMPLES)
    assert reader_of_convolution(result.model) == "QuantizeLinear"


def test_one_rounding_is_closer_to_the_float_model():
    model = network("PRelu").model()
    sqnr = {}
    for form in ("qdq", "qoperator"):
        int8 = npuconv.convert(model, "rknn", calibration=SAMPLES, format=form).model
        sqnr[form] = npuconv.verify(model, int8, SAMPLES).total.sqnr_db
    assert sqnr["qdq"] > sqnr["qoperator"] + 0.3
