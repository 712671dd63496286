"""Shape inference, its corrections, and shapes of inputs set by the user."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from npuconv import executor
from npuconv.errors import UsageError
from npuconv.model import load, query, save, shapes
from npuconv.model.proto import TensorType, Types
from support.asserts import read, run
from support.builders import Net


def convolution(height="h", width="w"):
    return load.load(Net(x=(1, 3, height, width)).conv("x", (4, 3, 3, 3)).op("Relu").model())


def found(*dims: int | str | None) -> TensorType:
    """Return the type of a tensor of these extents, as read from inference."""
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
    """Outputs of another domain, and all tensors after them, are unknown."""
    model = read(Net(x=(1, 4)).op("Thing", domain="com.example").op("Neg", to="y").model())
    assert out_shape(model) is None


def test_infer_of_sequences():
    """A value that is no tensor has no shape."""
    net = Net(x=(1, 4)).op("SequenceConstruct", "x")
    model = read(net.op("SequenceAt", "t0", net.constant(np.asarray(0, np.int64))).model())
    assert out_shape(model) is None


def test_a_number_beats_a_name():
    """Stated and inferred shapes are combined."""
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


def unnumbered(dims: tuple[object, ...]) -> tuple[object, ...]:
    """Return a shape without the numbers that ONNX counts unknown extents by."""
    return tuple(d.partition("__")[0] if isinstance(d, str) else d for d in dims)


@pytest.mark.parametrize("height", [9, "h"])
@pytest.mark.parametrize("lost", range(4))
def test_infer_unknown(height, lost):
    """Partial inference finds the same as inference on the whole graph."""
    net = Net(x=(1, 3, height, 8)).conv("x", (4, 3, 3, 3)).op("Shape")
    net.op("Gather", "t1", net.constant(np.asarray([0, 1], np.int64)))
    net.op("Concat", "t2", net.constant(np.asarray([-1], np.int64)), axis=0)
    net.op("Reshape", "t0", "t3").op("Relu")
    part, whole = load.load(net.model()), load.load(net.model())
    for model in (part, whole):
        shapes.infer(model)
        for node in model.nodes()[lost:]:
            node.outputs[0].shape = None
    shapes.infer_unknown(part)
    shapes.infer(whole)
    found = [[unnumbered(out_shape(model, i)) for i in range(6)] for model in (part, whole)]
    assert found[0] == found[1]
    assert found[0][4] == (1, 4, 42 if height == 9 else "unk")


def test_infer_leaves_alone_what_is_known(monkeypatch):
    """Inference does not run if all shapes are known."""
    model = convolution(8, 9)
    shapes.infer(model)
    monkeypatch.setattr(shapes, "infer_types", lambda *_: pytest.fail("asked"))
    shapes.infer_unknown(model)


def test_infer_unknown_inside_branches():
    """A branch may read any tensor: then inference covers the whole graph."""
    net = Net(x=(1, 4)).op("Neg", "x")
    branch = helper.make_graph(
        [helper.make_node("Abs", ["t0"], ["b"])], "b", [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)],
    )  # fmt: skip
    net.op("If", net.constant(np.asarray(True), "cond"), then_branch=branch, else_branch=branch)
    model = load.load(net.model())
    shapes.infer(model)
    model.nodes()[1].outputs[0].shape = None
    shapes.infer_unknown(model)
    assert out_shape(model, 1) == (1, 4)


def test_the_shape_that_an_input_has():
    """Shapes stay: an exporter may know some that inference cannot find."""
    model = read(Net(x=(1, 4)).op("Thing", domain="com.example").op("Neg").model())
    model.nodes()[0].outputs[0].shape = [1, 9]
    shapes.fix_inputs(model, {"x": (1, 4)})
    assert out_shape(model) == (1, 9)


@pytest.mark.parametrize(
    ("op", "weight", "group", "channels"),
    [
        ("Conv", (4, 3, 3, 3), 1, 3),
        ("Conv", (4, 3, 3, 3), 2, 6),
        ("ConvTranspose", (6, 2, 3, 3), 3, 6),
    ],
)
def test_channels_that_weights_tell(op, weight, group, channels):
    """An input of open channels has those that its convolution reads; a number stays."""
    net = Net(x=("N", "C", "H", 8)).conv("x", weight, op=op, group=group)
    model = read(net.model())
    shapes.fix_inputs(model, {})
    assert query.shape(model.graph.inputs[0]) == ("N", channels, "H", 8)
    model = read(Net(x=(1, 5, 8, 8)).conv("x", weight, op=op, group=group).model())
    shapes.fix_inputs(model, {})
    assert query.shape(model.graph.inputs[0]) == (1, 5, 8, 8)


def test_fix_inputs():
    """A given shape replaces symbols, and what was inferred from them."""
    model = convolution()
    shapes.infer(model)
    shapes.fix_inputs(model, {"x": (1, 3, 10, 12)})
    assert out_shape(model) is None
    shapes.infer(model)
    assert out_shape(model) == (1, 4, 8, 10)


def test_fix_no_inputs():
    """All shapes stay if none is given."""
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
        ({"x": (1, 4, 8, 8)}, "for other extents or ranks export the model anew"),
        ({"x": (1, 3, 0, 8)}, "must be positive, not [1, 3, 0, 8]"),
        ({"x": (-1, 3, 8, 8)}, "must be positive"),
    ],
)
def test_shapes_that_do_not_fit(given, words):
    """The line names the flag, the input and the shape in the model."""
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


def test_types_that_numpy_does_not_have():
    """Unknown shapes after a bfloat16 are inferred; it is never taken for a shape."""
    net = Net(x=("N", 3, 8, 8)).op("Cast", to="b").op("Cast", "b", to="f")
    proto = net.conv("f", (4, 3, 3, 3)).model()
    for node, kind in zip(
        proto.graph.node, (TensorProto.BFLOAT16, TensorProto.FLOAT), strict=False
    ):
        node.attribute.append(helper.make_attribute("to", kind))
    model = read(proto)
    shapes.infer_unknown(model)
    assert out_shape(model, 2)[1:] == (4, 6, 6)


def shape_of(proto) -> tuple:
    """Return the inferred shape of the output."""
    return query.shape(read(proto).graph.outputs[0])


@given(st.data())
def test_pools_that_round_up_have_the_shape_that_runs(data):
    """A window that would start beyond the input is left out."""
    op = data.draw(st.sampled_from(["MaxPool", "AveragePool"]))
    kernel, stride = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    begin, end = (data.draw(st.integers(0, kernel - 1)) for _ in range(2))
    extent = data.draw(st.integers(1, 12))
    assume(extent + begin + end >= kernel)
    opset = data.draw(st.sampled_from([11, 14, 19, 22]))
    proto = Net(opset=opset, ir_version=10 if opset > 18 else 8, x=(1, 2, extent)).op(
        op, kernel_shape=[kernel], strides=[stride], pads=[begin, end], ceil_mode=1
    )
    model = proto.model()
    assert shape_of(model) == run(model)[0].shape


def test_what_follows_is_inferred_anew():
    """The layers behind a pool have the extents they get."""
    net = Net(x=(1, 2, 5, 5)).op("MaxPool", kernel_shape=[1, 1], strides=[3, 3], ceil_mode=1)
    net.conv("", (4, 2, 1, 1)).op("MaxPool", kernel_shape=[2, 2], strides=[3, 3], ceil_mode=1)
    proto = net.op("Relu").model()
    model = read(proto)
    values = executor.Session(save.to_proto(model), optimize=False)
    assert shape_of(proto) == run(proto)[0].shape
    assert values.outputs == ["t3"]


@pytest.mark.parametrize(
    ("kernel", "stride", "extra"), list(itertools.product((1, 3), (1, 2, 3), (0, 1)))
)
def test_same_of_a_transposed_convolution(kernel, stride, extra):
    """The text of ONNX: the input's extent times the stride."""
    net = Net(x=(1, 2, 4, 4)).conv(
        "x", (2, 3, kernel, kernel), op="ConvTranspose", auto_pad="SAME_UPPER",
        strides=[stride] * 2, output_padding=[min(extra, stride - 1)] * 2,
    )  # fmt: skip
    assert shape_of(net.model()) == (1, 3, 4 * stride, 4 * stride)


@pytest.mark.parametrize("op", ["ConvTranspose", "Conv", "MaxPool"])
@pytest.mark.parametrize("batch", [1, "N"])
def test_a_shape_that_is_stated_wrongly(op, batch):
    """Batch and channels that another export has left inside are put right, as extents are."""
    net = Net(x=(batch, 4, 8, 7))
    if op == "MaxPool":
        net.op("MaxPool", kernel_shape=[1, 2], ceil_mode=1, strides=[1, 2], to="made")
    else:
        net.conv("x", (4, 4, 1, 3), op=op, to="made")
    proto = net.op("Relu").model()
    wanted = out_shape(read(proto))
    stated = helper.make_tensor_value_info("made", TensorProto.FLOAT, [7, 9, 5, 5])
    proto.graph.value_info.append(stated)
    model = read(proto)
    assert wanted is not None
    assert out_shape(model) == wanted
    assert out_shape(model, 1) == wanted


def test_nothing_is_said_of_what_is_not_known():
    """A symbolic extent, or attributes that mean nothing."""
    open_extent = Net(x=(1, 2, "H", "W")).op("MaxPool", kernel_shape=[2, 2], ceil_mode=1)
    assert shape_of(open_extent.model())[:2] == (1, 2)
    wrong = Net(x=(1, 2, 4, 4)).conv("x", (2, 3, 2, 2), op="ConvTranspose", strides=[0, 1])
    assert shape_of(wrong.model()) is None


def test_pools_side_by_side_are_inferred_once(monkeypatch):
    """Pools that need a correction share a single inference."""
    calls = []
    infer_types = shapes.infer_types
    monkeypatch.setattr(shapes, "infer_types", lambda *args: calls.append(1) or infer_types(*args))
    net = Net(x=(1, 2, 5, 5))
    for number in range(9):
        net.op("MaxPool", "x", to=f"p{number}", kernel_shape=[1, 1], strides=[3, 3], ceil_mode=1)
    proto = net.op("Concat", *(f"p{number}" for number in range(9)), axis=1).model()
    proto.graph.output[0].type.tensor_type.ClearField("shape")  # which ONNX has counted
    model = load.load(proto)
    shapes.infer(model)
    assert query.shape(model.graph.outputs[0]) == run(proto)[0].shape
    assert len(calls) == 1
