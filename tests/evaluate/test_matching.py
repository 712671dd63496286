"""Which tensor of the int8 model is which of the float model."""

from __future__ import annotations

import json

import numpy as np
import pytest

from npuconv.errors import ModelError
from npuconv.evaluate.matching import KEY, LayerPair, match, record, scales
from support.int8_pairs import Y_STEP, explicit_model, float_model, integer_model

ODD = [
    {"scale": "abc"},
    {"scale": -1.0},
    {"scale": []},
    {"scale": float("nan")},
    {"scale": {"a": 1}},
    {"zero_point": 2**40},
    {"zero_point": 0.5},
    {"axis": "x"},
    {"axis": -9},
    {"channels": [-1]},
    {"channels": "0"},
    {"name": 1},
    {"stored": ["c/int8"]},
    {"channels_last": "no"},
    {"more": 1},
]


def entry(**odd):
    """A note about one layer, with something odd in it."""
    usual = {"name": "conv", "tensor": "c", "stored": "c/int8", "scale": 0.1, "zero_point": 0}
    return json.dumps([usual | odd])


def test_by_name():
    """A layer ends behind its Relu; its scale is that of the conversion that reads it."""
    (layer,) = match(float_model(), integer_model()).layers
    assert (layer.name, layer.tensor, layer.stored) == ("conv", "r", "r/int8")
    assert (layer.scale, layer.zero_point) == (Y_STEP, 0)


@pytest.mark.parametrize("ending", ["_quantized", "_QuantizeLinear_Output"])
def test_names_of_others(ending):
    """Of quantizers that people use."""
    (layer,) = match(float_model(), integer_model(ending)).layers
    assert (layer.tensor, layer.stored) == ("r", f"r{ending}")


def test_a_relu_in_the_saturation():
    """Where the zero point is the least integer, the float layer ends behind its Relu too."""
    (layer,) = match(float_model(), explicit_model()).layers
    assert (layer.tensor, layer.stored) == ("r", "c_QuantizeLinear_Output")


def test_what_convert_noted_wins():
    """Scales of channels are in no graph; what is noted is read as it was written."""
    noted = LayerPair(
        "mine",
        "c",
        "c/int8",
        np.asarray([0.1, 0.25], np.float32),
        np.asarray([0, -3]),
        "a note",
        True,
    )
    model = integer_model()
    model.metadata_props.add(key=KEY, value=record([noted]))
    (found,) = match(float_model(), model).layers
    np.testing.assert_array_equal(np.asarray(found.scale, np.float32), noted.scale)
    assert found.zero_point == [0, -3]
    assert (found.name, found.note, found.channels_last) == ("mine", "a note", True)


def test_channels_come_back_as_they_were():
    """And are not noted where each is its own."""
    layers = [
        LayerPair("a", "c", "c/int8", 1.0, channels=(0, 0)),
        LayerPair("b", "c", "c/int8", 1.0),
    ]
    assert ["channels" in one for one in json.loads(record(layers))] == [True, False]
    model = integer_model()
    model.metadata_props.add(key=KEY, value=record(layers))
    assert [one.channels for one in match(float_model(), model).layers] == [(0, 0), ()]


def test_one_number_where_all_are_the_same():
    """And what is as usual is not written."""
    plain = LayerPair("n", "t", "s", np.full(3, 0.1, np.float32), np.zeros(3, np.int32))
    (entry,) = json.loads(record([plain]))
    assert entry == {"name": "n", "tensor": "t", "stored": "s", "scale": 0.1, "zero_point": 0}


def test_layers_that_only_the_int8_model_has():
    """Their names are told, they are not compared."""
    model = integer_model()
    there, gone = (
        LayerPair("a", "nowhere", "c/int8", 1.0),
        LayerPair("b", "c", "no such tensor", 1.0),
    )
    model.metadata_props.add(key=KEY, value=record([there, gone]))
    found = match(float_model(), model)
    assert (found.layers, found.unmatched) == ((), ("a",))


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '[{"name": "x"}]', *(entry(**odd) for odd in ODD)]
)
def test_a_note_that_somebody_changed(text):
    """Nothing is guessed from it."""
    model = integer_model()
    model.metadata_props.add(key=KEY, value=text)
    assert match(float_model(), model).layers == ()


def test_an_old_model_of_ours():
    """It does not say its layers, and its names alone would mislead."""
    model = integer_model()
    model.metadata_props.add(key="npuconv.version", value="0.0.1")
    assert match(float_model(), model).layers == ()


def test_scales_of_inputs_and_outputs():
    """As ``--io int8`` notes them."""
    model = integer_model()
    model.metadata_props.add(key="npuconv.scale.x", value="0.5")
    assert scales(model) == {"x": 0.5}


def test_what_is_usual_is_taken():
    """Else the tests of what is odd would show nothing."""
    model = integer_model()
    model.metadata_props.add(key=KEY, value=entry())
    assert len(match(float_model(), model).layers) == 1


@pytest.mark.parametrize("text", ["abc", "", "nan", "inf", "-1", "0", "1e300"])
def test_scales_that_are_none(text):
    """Which of what model, and what to do."""
    model = integer_model()
    model.metadata_props.add(key="npuconv.scale.x", value=text)
    with pytest.raises(
        ModelError, match=r"m\.onnx: .*npuconv\.scale\.x = .*convert the model again"
    ):
        scales(model, "m.onnx")
