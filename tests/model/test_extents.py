"""Tests of output extents where ONNX's inference is not to be trusted."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from npuconv import executor
from npuconv.model import query, save, shapes
from npuconv.model.shapes import wrong_shapes
from support.asserts import read, run
from support.builders import Net


def shape_of(proto) -> tuple:
    """What the model is said to make."""
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
    assert wrong_shapes(model, set()) == []
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


def test_nothing_is_said_of_what_is_not_known():
    """A symbolic extent, or attributes that mean nothing."""
    open_extent = Net(x=(1, 2, "H", "W")).op("MaxPool", kernel_shape=[2, 2], ceil_mode=1)
    assert shape_of(open_extent.model())[:2] == (1, 2)
    wrong = Net(x=(1, 2, 4, 4)).conv("x", (2, 3, 2, 2), op="ConvTranspose", strides=[0, 1])
    assert wrong_shapes(read(wrong.model()), set()) == []


def test_pools_side_by_side_are_put_right_at_once(monkeypatch):
    """Not the whole model inferred anew for each of them."""
    rounds = []
    infer = shapes._infer
    monkeypatch.setattr(shapes, "_infer", lambda *args: rounds.append(1) or infer(*args))
    net = Net(x=(1, 2, 5, 5))
    for number in range(9):
        net.op("MaxPool", "x", to=f"p{number}", kernel_shape=[1, 1], strides=[3, 3], ceil_mode=1)
    proto = net.op("Concat", *(f"p{number}" for number in range(9)), axis=1).model()
    assert shape_of(proto) == run(proto)[0].shape
    assert len(rounds) < 6
