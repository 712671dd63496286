"""Tests of the contents of a model, and of two models side by side."""

from __future__ import annotations

import json

import onnx
import pytest

import npuconv
from npuconv.cli.inspection import Counts, compare, inspect
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


def test_json():
    """JSON has everything, the same every time."""
    text = inspect(digits()).as_json()
    assert text == inspect(digits()).as_json()
    data = json.loads(text)
    assert data["convolutions"][0]["kernel"] == "3x3"
    assert text.endswith("}\n")


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


# Two models side by side

X = (1, 4, 8, 8)


def grouped(**attrs):
    net = Net(x=X).conv("x", (8, 2, 3, 3), group=2, name="block/g", **attrs)
    return net.conv("", (4, 8, 1, 1), name="last").model()


def differs(before, after):
    """Return the differences, by name."""
    found = compare(before, after).convolutions
    return {one.name: one.differs for one in found if one.differs}


def test_a_model_and_itself():
    """A model does not differ from itself."""
    found = compare(digits(), digits())
    assert found.before == found.after
    assert all(n.before == n.after for n in found.operators.values())
    assert len(found.convolutions) == 3
    assert differs(digits(), digits()) == {}


def test_operators():
    """Operators of either model are listed by name, with their numbers in each."""
    before = Net(x=X).op("Relu").op("Relu").model()
    after = Net(x=X).op("Relu").op("Abs").model()
    assert compare(before, after).operators == {"Abs": Counts(0, 1), "Relu": Counts(2, 1)}


def test_attributes():
    """Unequal attributes of convolutions with one name are listed."""
    before = Net(x=X).conv("x", (4, 4, 3, 3), name="c", strides=[2, 2]).model()
    after = Net(x=X).conv("x", (4, 4, 3, 3), name="c", pads=[1, 1, 1, 1], dilations=[2, 2]).model()
    assert differs(before, after) == {
        "c": {
            "output": ("1x4x3x3", "1x4x6x6"),
            "strides": ("2x2", "1x1"),
            "dilations": ("1x1", "2x2"),
            "pads": ("0,0,0,0", "1,1,1,1"),
            "MACs": ("1,296", "5,184"),
        }
    }


def test_a_convolution_that_was_split():
    """Its parts are named after it; their values stand together, their costs are added up."""
    after = npuconv.convert(grouped(), format="float", prefer=("split",)).model
    assert differs(grouped(), after) == {
        "block/g": {
            "operator": ("Conv", "2 Conv"),
            "input": ("1x4x8x8", "1x2x8x8"),
            "output": ("1x8x6x6", "1x4x6x6"),
            "group": ("2", "1"),
        }
    }


def test_a_converted_model():
    """Its integer convolutions are matched, and multiply as much."""
    found = compare(digits(1), npuconv.convert(digits(1)).model)
    assert found.operators["Conv"].after == 0
    assert found.operators["QLinearConv"].before == 0
    conv0 = next(one for one in found.convolutions if one.name == "conv0")
    assert conv0.differs == {
        "operator": ("Conv", "QLinearConv"),
        "pads": ("SAME_UPPER", "1,1,1,1"),
    }
    assert found.after.macs >= found.before.macs > 0


def test_what_became_a_convolution():
    """A product of matrices is matched with the convolution that is named after it."""
    before = Net(x=(1, 8)).op("Gemm", "x", "w", name="fc")
    before.random(8, 5, name="w")
    after = Net(x=(1, 8, 1, 1)).conv("x", (5, 8, 1, 1), name="fc/Conv").model()
    assert differs(before.model(), after) == {
        "fc": {
            "operator": ("Gemm", "Conv"),
            "kernel": ("", "1x1"),
            "weights": ("", "40"),
            "MACs": ("", "40"),
        }
    }


def test_what_is_gone_and_what_is_new():
    """A convolution without a counterpart has one side only."""
    before = Net(x=X).conv("x", (4, 4, 1, 1), name="old").model()
    after = Net(x=X).conv("x", (4, 4, 1, 1), name="new").model()
    found = compare(before, after).convolutions
    sides = {one.name: (len(one.before), len(one.after)) for one in found}
    assert sides == {"old": (1, 0), "new": (0, 1)}
    assert differs(before, after)["new"]["operator"] == ("", "Conv")
    assert differs(before, after)["old"]["operator"] == ("Conv", "")


def test_names_that_begin_alike():
    """The longest name wins, and only whole parts of a name count."""
    before = Net(x=X).conv("x", (4, 4, 1, 1), name="a").conv("", (4, 4, 1, 1), name="a/b").model()
    after = Net(x=X).conv("x", (4, 4, 1, 1), name="a/b/Conv").conv("", (4, 4, 1, 1), name="ab")
    found = {one.name: len(one.after) for one in compare(before, after.model()).convolutions}
    assert found == {"a": 0, "a/b": 1, "ab": 1}


def test_unknown_extents():
    """Extents unknown in both are equal; known in one only, they differ."""
    open_one = Net(x=(1, 4, "h", "w")).conv("x", (4, 4, 3, 3), name="c").model()
    fixed = Net(x=X).conv("x", (4, 4, 3, 3), name="c").model()
    assert differs(open_one, open_one) == {}
    assert differs(open_one, fixed)["c"]["MACs"] == ("?", "5,184")
    assert compare(open_one, fixed, {"x": X}).before.macs == 5184


def test_compared_json():
    """JSON has everything."""
    data = json.loads(compare(grouped(), digits()).as_json())
    assert data["before"]["opset"] == 17
    assert data["operators"]["Relu"] == {"before": 0, "after": 3}
    assert data["convolutions"][0]["name"] == "block/g"
    assert data["convolutions"][0]["differs"]["operator"] == ["Conv", ""]


def test_what_cannot_be_compared(tmp_path):
    """A file that is none, or a shape that does not fit."""
    with pytest.raises(ModelError):
        compare(digits(), tmp_path / "gone.onnx")
    with pytest.raises(UsageError):
        compare(digits(), digits(), {"y": (1,)})
