"""Tests of the contents of a model."""

from __future__ import annotations

import json

import onnx
import pytest

import npuconv
from npuconv.cli.inspection import inspect
from npuconv.errors import ModelError, UsageError
from support.builders import Net, digits


def test_a_small_classifier():
    """Operators, parameters and convolutions are counted as the model has them."""
    found = inspect(digits(1))
    assert (found.path, found.ir_version, found.opset) == ("test", 8, 17)
    assert found.inputs == ("x: float32 1x1x8x8",)
    assert found.outputs == ("t9: float32 1x10",)
    assert found.operators["Conv"] == 3
    assert (found.nodes, found.in_subgraphs) == (10, 0)
    assert found.parameters == 36 + 16 + (36 + 4) + (32 + 8) + 1280 + 10
    assert found.macs == 36 * 64 + 36 * 16 + 32 * 16 + 1280
    assert sum(c.macs for c in found.convolutions) == found.macs - 1280


def test_convolutions():
    """Each with its attributes as a person reads them."""
    net = Net(x=("N", 4, 8, "w")).conv("x", (8, 1, 3, 5), group=4, strides=[2, 1], name="dw")
    net.conv(net.last, (8, 3, 2, 2), op="ConvTranspose", pads=[1, 0, 1, 0], name="up")
    down, up = inspect(net.model()).convolutions
    assert (down.name, down.op, down.mode, down.group) == ("dw", "Conv", "depthwise", 4)
    assert (down.kernel, down.strides, down.dilations) == ("3x5", "2x1", "1x1")
    assert (down.input[:6], down.pads, down.macs) == ("Nx4x8x", "0,0,0,0", None)
    assert (up.mode, up.pads, up.parameters) == ("transposed", "1,0,1,0", 96)


def test_auto_pad_is_shown():
    """Pads that are worked out by the runtime are shown by their name."""
    assert inspect(digits()).convolutions[0].pads == "SAME_UPPER"


def test_dynamic_extents():
    """MACs that depend on them are not known, until they are given."""
    model = Net(x=("N", 3, "h", "w")).conv("x", (4, 3, 3, 3)).model()
    assert inspect(model).macs is None
    assert inspect(model, {"x": (1, 3, 8, 8)}).macs == 108 * 36


def test_unknown_dimensions_and_foreign_operators():
    """A dimension that is not known is a question mark, an operator has its domain."""
    found = inspect(Net(x=(1, None, 3)).op("Relu").op("Thing", domain="com.example").model())
    assert found.inputs == ("x: float32 1x?x3",)
    assert found.operators == {"Relu": 1, "com.example.Thing": 1}


def test_convolutions_of_unknown_rank_are_counted_and_not_shown():
    """Unknown convolutions have no row to show."""
    net = Net(x=(1, 3, 8, 8), w=(None, None, None, None)).op("Thing", domain="com.example")
    found = inspect(net.op("Conv", "t0", "w").model())
    assert found.operators["Conv"] == 1
    assert found.convolutions == ()


def test_weights_in_nodes_are_counted():
    """Exporters may write weights as Constant nodes."""
    model = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).model()
    weight = model.graph.initializer[0]
    made = onnx.helper.make_node("Constant", [], [weight.name], value=weight)
    model.graph.node.insert(0, made)
    del model.graph.initializer[0]
    assert inspect(model).parameters == 108 + 4


def test_nothing_is_changed(tmp_path):
    """A file and a proto stay as they are; the path is shown without folders."""
    path = tmp_path / "m.onnx"
    onnx.save(digits(), path)
    before = path.read_bytes()
    found = inspect(path)
    assert (found.path, len(found.sha256)) == ("m.onnx", 64)
    assert path.read_bytes() == before


def test_json(cli, folder):
    """JSON has everything, the same every time, and no character that acts on a terminal."""
    proto = digits()
    proto.graph.node[0].name = "über\x1b"
    onnx.save(proto, folder / "m.onnx")
    text = cli("inspect", "m.onnx", "--output-format", "json").out
    assert text == cli("inspect", "m.onnx", "--output-format", "json").out
    data = json.loads(text)
    assert data["convolutions"][0]["kernel"] == "3x3"
    assert data["steps"][0]["name"] == "über\x1b"
    assert "über\\u001b" in text


def test_what_cannot_be_inspected(tmp_path):
    """No model, or a shape that does not fit."""
    with pytest.raises(ModelError):
        inspect(tmp_path / "gone.onnx")
    with pytest.raises(UsageError):
        inspect(digits(), {"y": (1,)})


def test_a_quantized_model():
    """Integer convolutions are shown like those of a float model, and counted."""
    before, after = inspect(digits(1)), inspect(npuconv.convert(digits(1)).model)
    shown = after.convolutions[0]
    assert (shown.op, shown.name, shown.kernel) == ("QLinearConv", "conv0", "3x3")
    assert (shown.pads, shown.parameters) == ("1,1,1,1", 36)
    assert {"conv0", "conv4", "conv6"} <= {c.name for c in after.convolutions}
    assert after.macs >= before.macs


def test_channels_last():
    """Extents are shown as the model has them, and its picture is what is multiplied."""
    net = Net(x=(1, 8, 6, 4))
    net.op("Conv", "x", net.random(2, 4, 1, 1), domain="com.ms.internal.nhwc", name="c")
    model = net.model()
    (shown,) = inspect(model).convolutions
    assert (shown.op, shown.input, shown.kernel) == ("com.ms.internal.nhwc.Conv", "1x8x6x4", "1x1")


def test_a_foreign_operator_with_a_known_name():
    """Another domain's Conv is not a known one."""
    found = inspect(Net(x=(1, 4, 8, 8)).op("Conv", domain="com.example").model())
    assert found.convolutions == ()


def test_what_it_would_be_calibrated_on():
    """The data is that of convert; none if nothing is converted."""
    net = Net(x=(1, 3, 32, 32)).conv("x", (8, 3, 3, 3))
    assert "assumed pixels in" in inspect(net.model()).calibration
    assert inspect(Net(x=(1, 3, 32, 32)).op("Relu").model()).calibration == ""


def test_unusable_arguments(tmp_path):
    """A file that is none, or a shape that does not fit."""
    with pytest.raises(ModelError):
        inspect(tmp_path / "gone.onnx")
    with pytest.raises(UsageError):
        inspect(digits(), {"y": (1,)})
