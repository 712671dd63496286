"""Shapes: inferred without weights, forgotten and fixed where a user says so."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from asserts import read
from builders import Net, digits
from npuconv.errors import UsageError
from npuconv.model import load, query, shapes
from npuconv.model.protos import Found, Types


def convolution(height="h", width="w"):
    return load.load(Net(x=(1, 3, height, width)).conv("x", (4, 3, 3, 3)).op("Relu").model())


def found(*dims: int | str | None) -> Found:
    """What inference says of a tensor of these extents."""
    return Types().read(helper.make_tensor_value_info("t", TensorProto.FLOAT, dims))


def out_shape(model, place=0):
    return query.shape(model.nodes()[place].outputs[0])


def test_infer():
    """Sizes follow from the input; what is not known stays unknown."""
    model = convolution(8, 9)
    shapes.infer(model)
    assert out_shape(model) == out_shape(model, 1) == (1, 4, 6, 7)
    model = convolution()
    shapes.infer(model)
    assert out_shape(model)[:2] == (1, 4)
    assert not any(isinstance(d, int) for d in out_shape(model)[2:])


def test_infer_does_not_raise():
    """A graph that inference cannot follow stays as it is."""
    model = load.load(Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).op("Relu").model())
    model.nodes()[0].attrs["strides"] = [1, 1, 1]
    before = out_shape(model)
    shapes.infer(model)
    assert out_shape(model) == before


def test_infer_follows_shapes_that_are_computed():
    """Shape, Gather and Concat in front of a Reshape are worked out."""
    net = Net(x=(2, 3, 4, 5)).op("Shape", "x")
    net.op("Gather", "t0", net.constant(np.asarray([0], np.int64)))
    net.op("Concat", "t1", net.constant(np.asarray([-1], np.int64)), axis=0)
    model = read(net.op("Reshape", "x", "t2").model())
    assert out_shape(model, 3) == (2, 60)


def test_infer_of_foreign_operators():
    """Nothing is known of what another domain makes, nor of what comes after."""
    model = read(Net(x=(1, 4)).op("Thing", domain="com.example").op("Neg", to="y").model())
    assert out_shape(model) is None


def test_infer_of_sequences():
    """A value that is no tensor has no shape."""
    net = Net(x=(1, 4)).op("SequenceConstruct", "x")
    model = read(net.op("SequenceAt", "t0", net.constant(np.asarray(0, np.int64))).model())
    assert out_shape(model) is None


def test_a_number_beats_a_name():
    """What the model says and what is inferred are put together."""
    model = load.load(Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).op("Relu").model())
    (out,) = model.graph.outputs
    out.shape = ["batch", "c", 6, None]
    shapes.infer(model)
    assert query.shape(out) == (1, 4, 6, 6)
    tensor = model.nodes()[0].outputs[0]
    tensor.shape = [1, 2]  # another rank: what is inferred is right
    model.nodes()[1].outputs[0].shape = None
    shapes._update(tensor, found(1, "n", None))
    assert query.shape(tensor) == (1, "n", None)
    shapes._update(tensor, found(None, "m", 5))
    assert query.shape(tensor) == (1, "n", 5)
    shapes._update(tensor, Types().read(helper.make_empty_tensor_value_info("t")))
    assert query.shape(tensor) == (1, "n", 5)


def test_weights_stay_out():
    """Long constants become inputs of the skeleton; short ones, which may be shapes, stay."""
    model = read(Net(x=(1, 64, 8, 8)).conv("x", (4, 64, 3, 3)).reshape([1, -1]).model())
    proto = shapes.skeleton(model)
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
    assert [t.name for t in shapes.constants(model.graph)] == ["cond", "w"]


def test_value_info():
    """A tensor of unknown type has a name and nothing else."""
    model = load.load(digits())
    tensor = model.nodes()[0].outputs[0]
    tensor.dtype = None
    assert not shapes.value_info(tensor).HasField("type")


def test_fix_inputs():
    """A given shape replaces symbols, and what was inferred from them."""
    model = convolution()
    shapes.infer(model)
    shapes.fix_inputs(model, {"x": (1, 3, 10, 12)})
    assert out_shape(model) is None
    shapes.infer(model)
    assert out_shape(model) == (1, 4, 8, 10)


def test_fix_no_inputs():
    """Nothing given, nothing forgotten."""
    model = convolution()
    shapes.infer(model)
    before = out_shape(model)
    shapes.fix_inputs(model, {})
    assert out_shape(model) == before


def test_an_input_of_unknown_rank_can_be_fixed():
    """Any rank is taken where the model says none."""
    model = convolution()
    model.graph.inputs[0].shape = None
    shapes.fix_inputs(model, {"x": (1, 3, 10, 12)})
    assert query.shape(model.graph.inputs[0]) == (1, 3, 10, 12)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"y": (1, 3, 8, 8)}, "no such input (inputs: x)"),
        ({"x": (1, 3, 8)}, "--input-shape x=1,3,8: the model says 1,3,h,w"),
        ({"x": (1, 4, 8, 8)}, "the model says 1,3,h,w"),
        ({"x": (1, 3, 0, 8)}, "must be positive, not [1, 3, 0, 8]"),
        ({"x": (-1, 3, 8, 8)}, "must be positive"),
    ],
)
def test_shapes_that_do_not_fit(given, words):
    """The line names the flag, the input and what the model says."""
    with pytest.raises(UsageError) as caught:
        shapes.fix_inputs(convolution(), given)
    assert words in str(caught.value)
    assert "--input-shape" in str(caught.value)


def test_an_unknown_dimension_is_shown_as_a_question():
    """A dimension without a name is shown as ?."""
    model = convolution()
    model.graph.inputs[0].shape = [1, 3, None, -1]
    with pytest.raises(UsageError, match=r"the model says 1,3,\?,\?"):
        shapes.fix_inputs(model, {"x": (2, 3, 8, 8)})
