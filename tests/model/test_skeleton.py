"""The skeleton of a graph: what shape inference is given instead of it."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from npuconv.model import load, skeleton
from support.asserts import read
from support.builders import Net, digits


def test_weights_stay_out():
    """Long constants become inputs of the skeleton; short ones, which may be shapes, stay."""
    model = read(Net(x=(1, 64, 8, 8)).conv("x", (4, 64, 3, 3)).reshape([1, -1]).model())
    proto = skeleton.skeleton(model)
    assert [i.name for i in proto.graph.input] == ["x", "c0"]
    assert {t.name for t in proto.graph.initializer} == {"c1", "c2"}


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
    assert [t.name for t in skeleton.constants(model.graph)] == ["cond", "w"]


def test_value_info():
    """A tensor of unknown type has a name and nothing else."""
    model = load.load(digits())
    tensor = model.nodes()[0].outputs[0]
    tensor.dtype = None
    assert not skeleton.value_info(tensor).HasField("type")


def test_part_of_a_graph():
    """What nodes read and do not make is an input, whatever it was before."""
    model = read(Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).op("Relu").op("Neg").model())
    proto = skeleton.skeleton(model, model.nodes()[2:])
    assert [node.op_type for node in proto.graph.node] == ["Neg"]
    assert {i.name for i in proto.graph.input} == {"x", "t1"}
    assert [o.name for o in proto.graph.output] == ["t2"]
