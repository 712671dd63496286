"""Operators written as functions of operators that TFLite has."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import npuconv
from npuconv.emit.tflite.functions import expand
from npuconv.emit.tflite.translate import translate
from npuconv.executor import Session
from npuconv.ops.operator import OPERATORS
from support.builders import Net
from support.tflite_files import operators, reference_kernels, stored

HELD = {operator.name for operator in OPERATORS if operator.to_tflite}

C = np.linspace(0.5, 2, 4, dtype=np.float32)
W = np.linspace(-1, 2, 6, dtype=np.float32)
PLANES = np.linspace(-1, 1, 48, dtype=np.float32).reshape(8, 6)


def net(op: str, opset: int = 21, shape: tuple = (1, 4, 8, 6), constants=(), **attrs):
    """Return a model of one node, which reads x and constants."""
    names = [f"c{number}" for number in range(len(constants))]
    node = helper.make_node(op, ["x", *names], ["y"], name="node", **attrs)
    graph = helper.make_graph(
        [node],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(c), n) for c, n in zip(constants, names, strict=True)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


AXES = np.asarray([1])
NETS = {
    "softplus": net("Softplus"),
    "mish": net("Mish"),
    "swish": net("Swish", 24, alpha=1.5),
    "selu": net("Selu"),
    "celu": net("Celu", alpha=0.7),
    "elu": net("Elu", alpha=0.7),
    "hard sigmoid": net("HardSigmoid", alpha=0.3),
    "thresholded": net("ThresholdedRelu"),
    "shrink": net("Shrink", lambd=0.4, bias=0.1),
    "softsign": net("Softsign"),
    "reciprocal": net("Reciprocal"),
    "layer": net("LayerNormalization", constants=(W, W + 1)),
    "layer, no bias": net("LayerNormalization", constants=(W,)),
    "layer, two axes": net("LayerNormalization", constants=(PLANES, PLANES), axis=-2, epsilon=0.1),
    "group": net("GroupNormalization", constants=(C, -C), num_groups=2),
    "group, one axis": net("GroupNormalization", 21, (1, 4, 9), (C, -C), num_groups=4),
    "instance": net("InstanceNormalization", constants=(C, -C), epsilon=1e-3),
    "mean and variance": net("MeanVarianceNormalization"),
    "rms": net("RMSNormalization", 23, constants=(W,)),
    "l1 normalization": net("LpNormalization", p=1),
    "l2 normalization": net("LpNormalization", axis=1),
    "l2": net("ReduceL2", constants=(AXES,)),
    "l1 of all": net("ReduceL1", keepdims=0),
    "squares": net("ReduceSumSquare", constants=(AXES,)),
    "opset 17": net("LayerNormalization", 17, constants=(W, W)),
}


def values(model: onnx.ModelProto, scale: float, offset: float = 0.0) -> np.ndarray:
    """Return an input of a model."""
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    return np.random.default_rng(3).normal(offset, scale, shape).astype(np.float32)


def expanded(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy whose nodes are operators that TFLite holds, in an opset that has these."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    sources = expand(copy, HELD)
    assert set(sources.values()) == {"node"}
    assert {node.op_type for node in copy.graph.node} <= set(HELD)
    assert {node.name for node in copy.graph.node} == set(sources)
    copy.opset_import[0].version = max(copy.opset_import[0].version, 18)
    return copy


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize(("scale", "offset"), [(1, 0), (40, 100)])
def test_a_function_gives_what_the_operator_gives(name, scale, offset):
    """Far from 0, too, where an exponential overflows and squares cancel."""
    model = NETS[name]
    x = values(model, scale, offset)
    wanted = Session(model).run({"x": x})["y"]
    found = Session(expanded(model)).run({"x": x})["y"]
    np.testing.assert_allclose(found, wanted, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("name", NETS)
def test_litert_gives_what_the_operator_gives(name):
    if name == "celu":
        pytest.skip("the reference kernels of LiteRT have no ELU")
    model = NETS[name]
    x = values(model, 1)
    made = translate(model)
    (found,) = reference_kernels(made.graph, [x.transpose(made.inputs[0].order)])
    wanted = Session(model).run({"x": x})["y"]
    np.testing.assert_allclose(found, stored(made.outputs[0], wanted), atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["group", "mean and variance", "l2 normalization", "mish"])
def test_a_function_stands_between_convolutions(name):
    """The second convolution needs the shape of its input."""
    node = NETS[name].graph.node[0]
    before = Net(x=(1, 3, 8, 6), opset=21, ir_version=10).conv("x", (4, 3, 1, 1))
    inputs = [before.last, *(before.constant(C) for _ in node.input[1:])]
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    model = before.op(node.op_type, *inputs, **attrs).conv("", (2, 4, 3, 3)).model()
    for info in model.graph.output:
        info.type.tensor_type.ClearField("shape")
    assert npuconv.check(model, "ethos-u55").summary.verdict != "refused"


def test_gelu_by_an_erf_is_one_operator():
    """TFLite has GELU, but no Erf."""
    before = Net(x=(1, 3, 8, 6)).conv("x", (4, 3, 1, 1))
    x, root = before.last, before.constant(2**0.5)
    before.op("Div", x, root).op("Erf").op("Add", "t2", before.constant(1.0))
    before.op("Mul", x, before.last).op("Mul", "t4", before.constant(0.5))
    result = npuconv.convert(before.conv("", (2, 4, 3, 3)).model(), "ethos-u55")
    assert result.tflite is not None
    assert result.tflite.operators["GELU"] == 1
    assert result.tflite.operators["CONV_2D"] == 2


def test_l2_normalization_of_zeros_is_zero():
    model = NETS["l2 normalization"]
    x = np.zeros((1, 4, 8, 6), np.float32)
    np.testing.assert_array_equal(Session(expanded(model)).run({"x": x})["y"], x)


def test_attention_is_products_and_a_softmax():
    """Its shapes are computed; nothing of them is left."""
    model = net("Attention", 23, (1, 2, 6, 8))
    model.graph.node[0].input[:] = ["x", "x", "x"]
    copy = expanded(model)
    parts = [node.op_type for node in copy.graph.node]
    assert parts.count("MatMul") == 2
    assert not {"Shape", "Constant", "ConstantOfShape"} & set(parts)
    x = values(model, 1)
    wanted = Session(model).run({"x": x})["y"]
    np.testing.assert_allclose(Session(copy).run({"x": x})["y"], wanted, atol=2e-6)


@pytest.mark.parametrize("op", ["Erf", "ReduceLogSumExp", "Relu", "Elu", "Shape"])
def test_what_stays(op):
    """No function, one that overflows, what TFLite holds as it is, and what will be a constant."""
    model = net(op)
    before = model.SerializeToString()
    assert expand(model, HELD) == {}
    assert model.SerializeToString() == before


def test_a_cast_to_the_same_type_is_no_operator():
    """Functions of ONNX cast to the type that they compute in."""
    assert "CAST" not in operators(NETS["rms"])
