"""Input of shape inference: the graph without weights, and substitutes of misread nodes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import npuconv
from npuconv.model import inference, load, query
from npuconv.model.proto import Types
from support.asserts import read
from support.builders import Net, digits


def test_weights_stay_out():
    """Long constants become inputs of the skeleton; short constants, which may be shapes, stay."""
    model = read(Net(x=(1, 64, 8, 8)).conv("x", (4, 64, 3, 3)).reshape([1, -1]).model())
    proto = inference.skeleton(model, model.nodes())
    assert [i.name for i in proto.graph.input] == ["x", "c0"]
    assert {t.name for t in proto.graph.initializer} == {"c1", "c2"}


def test_types_without_weights():
    """A model of any size is inferred as with its weights; short constants decide shapes."""
    proto = Net(x=(1, 64, 8, 8)).conv("x", (4, 64, 3, 3)).reshape([2, -1]).model()
    size, types = len(proto.SerializeToString()), inference.typed_values(proto)
    inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True).graph
    values = (*inferred.input, *inferred.value_info, *inferred.output)
    assert {value.name: value for value in types} == {value.name: value for value in values}
    assert [d.dim_value for d in types[-1].type.tensor_type.shape.dim] == [2, 72]
    assert len(proto.SerializeToString()) == size


def test_constants_inside_subgraphs():
    """A constant that a branch reads is one of the graph's; what the branch makes is not."""

    def branch(op):
        nodes = [helper.make_node(op, ["w"], ["in"]), helper.make_node("Neg", ["in"], [op])]
        out = helper.make_tensor_value_info(op, TensorProto.FLOAT, [4])
        return helper.make_graph(nodes, op, [], [out])

    net = Net(x=(1, 4))
    net.constant(np.ones(4), "w")
    cond = net.constant(np.asarray(True), "cond")
    net.op("If", cond, then_branch=branch("Abs"), else_branch=branch("Sin"))
    model = load.load(net.model())
    assert [t.name for t in query.constants(model.graph.nodes)] == ["cond", "w"]


def test_value_info():
    """A tensor of unknown type has a name and nothing else."""
    model = load.load(digits())
    tensor = model.nodes()[0].outputs[0]
    tensor.dtype = None
    info = onnx.ValueInfoProto()
    Types().write(tensor, info)
    assert not info.HasField("type")


def test_part_of_a_graph():
    """Tensors that nodes read but do not produce are inputs."""
    model = read(Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).op("Relu").op("Neg").model())
    proto = inference.skeleton(model, model.nodes()[2:])
    assert [node.op_type for node in proto.graph.node] == ["Neg"]
    assert {i.name for i in proto.graph.input} == {"x", "t1"}
    assert [o.name for o in proto.graph.output] == ["t2"]


X = (1, 4, 6, 5)


def made(net: Net) -> tuple:
    """The shape of the last node's output."""
    proto = net.model()
    proto.graph.output[0].type.tensor_type.ClearField("shape")  # which inference has put there
    return query.shape(read(proto).nodes()[-1].outputs[0])


@pytest.mark.parametrize("opset", [11, 21])
@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({"auto_pad": "SAME_UPPER", "strides": [2, 2], "output_padding": [1, 1]}, (12, 10)),
        ({"auto_pad": "SAME_LOWER", "strides": [4, 4]}, (24, 20)),
        ({"auto_pad": "SAME_UPPER", "pads": [0, 0, 0, 0]}, (6, 5)),
        ({"auto_pad": "VALID", "pads": [0, 0, 0, 0]}, (8, 7)),
        ({"output_shape": [3, 5]}, (3, 5)),
        ({"output_shape": [9, 9], "pads": [1, 1, 1, 1]}, (9, 9)),
    ],
)
def test_transposed(opset, attrs, expected):
    """Stride times extent for SAME, and what output_shape says."""
    net = Net(x=X, opset=opset).conv("x", (4, 2, 3, 3), op="ConvTranspose", **attrs)
    assert made(net) == (1, 2, *expected)


def test_same_beside_zero_pads():
    """Explicit pads of zero beside SAME have no effect."""
    net = Net(x=X).conv("x", (4, 4, 3, 3), auto_pad="SAME_UPPER", pads=[0, 0, 0, 0])
    assert made(net) == (1, 4, 6, 5)


@pytest.mark.parametrize("opset", [13, 22])
def test_a_window_behind_the_input(opset):
    """Along one axis the last window does not count, along the other it does."""
    net = Net(x=X, opset=opset)
    net.op("MaxPool", kernel_shape=[1, 2], strides=[2, 2], ceil_mode=1)
    assert made(net) == (1, 4, 3, 3)
    net.op("AveragePool", kernel_shape=[1, 1], strides=[2, 3], ceil_mode=1)
    assert made(net) == (1, 4, 2, 1)


def test_opset_1():
    """ONNX's inference does not know these operators at opset 1."""
    net = Net(x=X, opset=1, ir_version=3)
    net.op("Relu").op("Pad", paddings=[0, 0, 1, 1, 0, 0, 1, 1])
    net.op("Mul", net.last, net.random(4), broadcast=1, axis=1)
    assert made(net) == (1, 4, 8, 7)


@pytest.mark.parametrize("op", ["GroupNormalization", "MeanVarianceNormalization"])
def test_functions_keep_the_shape(op):
    """Inference does not find the shape of the output in the body of the function."""
    net = Net(x=X, opset=21, ir_version=10)
    group = op == "GroupNormalization"
    inputs, attrs = ([net.random(4), net.random(4)], {"num_groups": 2}) if group else ([], {})
    net.op(op, "x", *inputs, **attrs).op("MaxPool", kernel_shape=[2, 2])
    assert made(net) == (1, 4, 5, 4)


@pytest.mark.parametrize("name", ["strides", "dilations", "output_padding"])
def test_attributes_of_a_wrong_length(name):
    """Inference cannot use such attributes; a rule reports them later."""
    attrs = {"auto_pad": "SAME_UPPER", name: [1, 1, 1]}
    model = Net(x=(1, 3, 8, 8)).conv("x", (3, 4, 3, 3), op="ConvTranspose", **attrs).model()
    report = npuconv.check(model)
    assert report.summary.verdict == "refused"
    assert any(name in finding.message for finding in report.findings)
