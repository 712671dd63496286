"""The bytes of tensors that live at the same time."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from npuconv.inspection import read
from npuconv.partition import peak
from support.builders import Net


def test_a_chain():
    """Two tensors live at once: what a node reads and what it makes."""
    net = Net(x=(1, 2, 4, 4)).op("Relu", name="r").op("Neg", name="n").op("Abs", name="a")
    worst = peak(read(net.model()))
    assert (worst.bytes, worst.int8_bytes, worst.node) == (2 * 32 * 4, 2 * 32, "r")


def test_a_tensor_that_is_read_later():
    """A residual connection keeps its tensor until it is added."""
    net = Net(x=(1, 8)).op("Relu", name="r").op("Neg", name="n").op("Abs", name="a")
    net.op("Add", "x", net.last, name="sum")
    worst = peak(read(net.model()))
    assert (worst.bytes, worst.node) == (3 * 8 * 4, "n")


def test_constants_take_no_part():
    """Weights, and what is computed of constants alone, are no activations."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), pads=[1, 1, 1, 1])
    assert peak(read(net.model())).bytes == (3 + 4) * 64 * 4
    model = Net(x=(1, 8)).op("Relu").model()
    value = onnx.numpy_helper.from_array(np.ones(1000, np.float32))
    model.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["k"], value=value))
    model.graph.node.insert(1, onnx.helper.make_node("Neg", ["k"], ["n"]))
    assert peak(read(model)).bytes == 2 * 8 * 4


def test_outputs_live_to_the_end():
    """A result that is ready early is still there when the last node runs."""
    net = Net(x=(1, 8)).op("Relu").op("Neg", "x").op("Abs").op("Exp", name="last")
    model = net.model()
    model.graph.output.append(onnx.helper.make_tensor_value_info("t0", 1, (1, 8)))
    assert peak(read(model)).bytes == 3 * 8 * 4


def test_integers_stay_as_wide():
    """What is no float number would not be int8 either."""
    net = Net(x=(1, 8)).op("Shape", name="s")
    worst = peak(read(net.model()))
    assert (worst.bytes, worst.int8_bytes) == (8 * 4 + 2 * 8, 8 + 2 * 8)


@pytest.mark.parametrize("shape", [(1, "h", 4), (1, None, 4)])
def test_unknown_extents(shape):
    """Nothing is guessed; a batch that is left open is one sample."""
    assert peak(read(Net(x=shape).op("Relu").model())) is None
    assert peak(read(Net(x=("N", 4)).op("Relu").model())).bytes == 32
    unknown = Net(x=(1, 4)).op("Thing", domain="com.example").op("Relu").model()
    assert peak(read(unknown)) is None


def test_unknown_types():
    """Of strings nobody says how long they are."""
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.STRING, (1,))],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.STRING, (1,))],
    )
    assert peak(read(onnx.helper.make_model(graph))) is None


def test_an_output_that_nobody_reads():
    """The mask of a Dropout has no shape in many models, and takes no part."""
    net = Net(x=(1, 2, 4, 4)).op("Dropout", outputs=2).op("Relu", "t0", name="r")
    model = read(net.model())
    model.nodes("Dropout")[0].outputs[1].shape = None
    assert peak(model).bytes == 2 * 32 * 4
