"""Two models side by side, in plain numbers."""

from __future__ import annotations

import json

import pytest

import npuconv
from npuconv.comparison import Counts, compare
from npuconv.errors import ModelError, UsageError
from support.builders import Net, digits

X = (1, 4, 8, 8)


def grouped(**attrs):
    net = Net(x=X).conv("x", (8, 2, 3, 3), group=2, name="block/g", **attrs)
    return net.conv("", (4, 8, 1, 1), name="last").model()


def differs(before, after):
    """What differs, by name."""
    found = compare(before, after).convolutions
    return {one.name: one.differs for one in found if one.differs}


def test_a_model_and_itself():
    """Nothing differs."""
    found = compare(digits(), digits())
    assert found.before == found.after
    assert all(n.before == n.after for n in found.operators.values())
    assert len(found.convolutions) == 3
    assert differs(digits(), digits()) == {}


def test_operators():
    """Those of either model, by name, with how often they occur in each."""
    before = Net(x=X).op("Relu").op("Relu").model()
    after = Net(x=X).op("Relu").op("Abs").model()
    assert compare(before, after).operators == {"Abs": Counts(0, 1), "Relu": Counts(2, 1)}


def test_attributes():
    """Of convolutions with one name, what is not equal."""
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
    after = npuconv.convert(grouped(), format="float").model
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
    """What is not known of either is no difference; what is known of one is."""
    open_one = Net(x=(1, 4, "h", "w")).conv("x", (4, 4, 3, 3), name="c").model()
    fixed = Net(x=X).conv("x", (4, 4, 3, 3), name="c").model()
    assert differs(open_one, open_one) == {}
    assert differs(open_one, fixed)["c"]["MACs"] == ("?", "5,184")
    assert compare(open_one, fixed, {"x": X}).before.macs == 5184


def test_json():
    """Everything, for programs."""
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
