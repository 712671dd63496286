"""Inputs for samples: extents where the model leaves them open."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import npuconv
from npuconv.data.model_inputs import sample_inputs
from npuconv.errors import ModelError
from npuconv.model import save
from support.asserts import read
from support.builders import Net, images


def wanted(built, source=None):
    model = read(built.model() if isinstance(built, Net) else built)
    return sample_inputs(model, save.to_proto(model), source)


def shape_of(built, source=None):
    specs, sentence = wanted(built, source)
    return specs[0].shape, sentence


def test_fixed_inputs():
    """Fixed inputs need no assumption, and a symbolic batch is not reported."""
    assert shape_of(Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3))) == ((1, 3, 8, 8), "")
    assert shape_of(Net(x=("N", 3, 8, 8)).conv("x", (4, 3, 3, 3))) == (("N", 3, 8, 8), "")


def test_samples_know_their_own_shape():
    """The user's samples leave no extent to assume."""
    net = Net(x=(1, 3, "h", "w")).conv("x", (4, 3, 3, 3))
    assert shape_of(net, images(1, 3, 8, 8)) == ((1, 3, "h", "w"), "")


def test_height_and_width():
    """The most common extents that the model runs on are taken and reported."""
    shape, sentence = shape_of(Net(x=("N", 3, "h", "w")).conv("x", (4, 3, 3, 3)))
    assert shape == (1, 3, 224, 224)
    assert sentence == (
        "the model leaves its input shape open, assumed is x=1,3,224,224: give --input-shape"
    )


def test_the_first_that_runs():
    """Extents that the model refuses are skipped."""
    net = Net(x=(1, 3, "h", "w"), other=(1, 3, 48, 320)).op("Add", "x", "other")
    shape, _ = shape_of(net.conv("", (4, 3, 3, 3)))
    assert shape == (1, 3, 48, 320)


def test_one_open_axis():
    """One axis alone takes the width; the rest stays as it is."""
    shape, _ = shape_of(Net(x=(1, 3, 48, "w")).conv("x", (4, 3, 3, 3)))
    assert shape == (1, 3, 48, 224)


def test_nothing_runs():
    """Inputs stay as they are if no candidate runs."""
    net = Net(x=(1, 3, "h", "w"), other=(1, 3, 7, 5)).op("Concat", "x", "other", axis=1)
    assert shape_of(net.conv("", (4, 6, 1, 1))) == ((1, 3, "h", "w"), "")


def test_several_inputs():
    """All are filled with the same extents, and those that were open are named."""
    net = Net(x=(1, 3, "h", "w"), fixed=(1, 4), y=(1, 3, "h", "w")).op("Add", "x", "y")
    specs, sentence = wanted(net.conv("", (4, 3, 3, 3)))
    assert [s.shape for s in specs] == [(1, 3, 224, 224), (1, 4), (1, 3, 224, 224)]
    assert "x=1,3,224,224; y=1,3,224,224" in sentence


def test_types():
    """A sample has the input's type, float where the model does not say."""
    net = Net(x=(1, 4, 8)).op("Relu")
    net.inputs.append(onnx.helper.make_tensor_value_info("k", onnx.TensorProto.INT64, [2]))
    specs, _ = wanted(net.op("Gather", "t0", "k", axis=1))
    assert [s.dtype for s in specs] == [np.float32, np.int64]
    model = read(Net(x=(1, 4)).op("Relu").model())
    model.graph.inputs[0].dtype = None
    assert sample_inputs(model, onnx.ModelProto(), None)[0][0].dtype == np.float32


def test_unknown_rank():
    """An input of unknown rank stays as it is."""
    net = Net(x=(1, 3, "h", "w"), y=(1, 3)).conv("x", (4, 3, 3, 3))
    model = read(net.model())
    proto = save.to_proto(model)
    model.graph.inputs[1].shape = None
    with pytest.raises(npuconv.CalibrationError):
        sample_inputs(model, proto, None)
    model.graph.inputs[0].shape = None
    specs, sentence = sample_inputs(model, proto, None)
    assert ([s.shape for s in specs], sentence) == ([None, None], "")


def test_the_report_says_what_was_assumed():
    """The sentence is a warning, and --input-shape makes it go away."""
    net = Net(x=(1, 3, "h", "w")).conv("x", (4, 3, 3, 3)).model()
    warnings = npuconv.convert(net).report.summary.warnings
    assert any("assumed is" in w for w in warnings)
    fixed = npuconv.convert(net, input_shape={"x": (1, 3, 8, 8)}).report
    assert not any(w.startswith("input shape") for w in fixed.summary.warnings)


def test_a_batch_that_is_not_the_first_axis():
    """A batch on the second axis, as of a recurrent state, becomes 1 too."""
    net = Net(x=("batch", 3, 8, 8), state=(2, "batch", 3, 8, 8)).conv("x", (4, 3, 3, 3))
    net.output().op("Identity", "state").output()
    specs, _ = wanted(net)
    assert [s.shape for s in specs] == [("batch", 3, 8, 8), (2, 1, 3, 8, 8)]
    samples = {"x": images(1, 3, 8, 8), "state": images(2, 1, 3, 8, 8)}
    specs, _ = wanted(net, [samples])
    assert specs[1].shape == (2, "batch", 3, 8, 8)


def test_sound():
    """One long axis is taken where no image extent suits the kernel."""
    net = Net(x=("N", 1, "t")).conv("x", (4, 1, 400), strides=[160])
    assert shape_of(net)[0] == (1, 1, 512)


@pytest.mark.parametrize("kind", [TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN])
def test_a_type_that_numpy_does_not_have(kind):
    """An input of a type without a numpy type is an error that names it."""
    proto = Net(x=(1, 3, 8, 8)).op("Cast", to="f").conv("f", (4, 3, 3, 3)).model()
    proto.graph.node[0].attribute.append(helper.make_attribute("to", TensorProto.FLOAT))
    proto.graph.input[0].type.tensor_type.elem_type = kind
    with pytest.raises(ModelError, match=r"input 'x' is (bfloat16|float8).*export.*float32"):
        npuconv.convert(proto)


def integers(build):
    net = Net()
    net.inputs.append(helper.make_tensor_value_info("u", TensorProto.INT32, (1, 3, 16, 16)))
    build(net)
    return wanted(net)[0][0]


def test_integers_that_are_quantities():
    """Integers that are cast and scaled are quantities, indices of a table are not."""
    table = np.ones((256, 4), np.float32)

    def cast(net: Net) -> None:
        net.nodes.append(helper.make_node("Cast", ["u"], ["f"], to=TensorProto.FLOAT))
        net.op("Div", "f", net.constant(255.0)).conv("", (4, 3, 3, 3))

    def later(net: Net) -> None:
        net.op("Transpose", "u", perm=[0, 1, 3, 2]).op("Sub", "t0", "k")
        net.constant(np.asarray(128, np.int32), "k")
        net.nodes.append(helper.make_node("Cast", [net.last], ["f"], to=TensorProto.FLOAT))
        net.conv("f", (4, 3, 3, 3))

    def embedded(net: Net) -> None:
        net.op("Gather", net.constant(table), "u")

    def also_embedded(net: Net) -> None:
        cast(net)
        net.op("Gather", net.constant(table), "u").output()

    assert integers(cast).is_quantity
    assert integers(later).is_quantity
    assert not integers(embedded).is_quantity
    assert not integers(also_embedded).is_quantity
