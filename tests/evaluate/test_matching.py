"""Matching: tensors of the int8 model and those of the float model."""

from __future__ import annotations

import json

import numpy as np
import pytest

from npuconv.emit import keys
from npuconv.errors import ModelError
from npuconv.evaluate.matching import LayerPair, match, record, scales
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
    {"name": 1},
    {"stored": ["c/int8"]},
    {"channels_last": "no"},
    {"more": 1},
]


def entry(**odd):
    """Return the metadata of one layer, with some values replaced."""
    usual = {"name": "conv", "tensor": "c", "stored": "c/int8", "scale": 0.1, "zero_point": 0}
    return json.dumps([usual | odd])


def test_by_name():
    """A layer ends behind its Relu; its scale is that of the conversion behind it."""
    (layer,), _ = match(float_model(), integer_model())
    assert (layer.name, layer.tensor, layer.stored) == ("conv", "r", "r/int8")
    assert (layer.scale, layer.zero_point) == (Y_STEP, 0)


@pytest.mark.parametrize("ending", ["_quantized", "_QuantizeLinear_Output"])
def test_names_of_others(ending):
    """Names of other quantizers are matched too."""
    (layer,), _ = match(float_model(), integer_model(ending))
    assert (layer.tensor, layer.stored) == ("r", f"r{ending}")


def test_a_relu_in_the_saturation():
    """A zero point of the least integer ends the float layer behind its Relu."""
    (layer,), _ = match(float_model(), explicit_model())
    assert (layer.tensor, layer.stored) == ("r", "c_QuantizeLinear_Output")


def test_what_convert_noted_wins():
    """The metadata of convert is read back as it was written, and comes first."""
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
    model.metadata_props.add(key=keys.LAYERS, value=record([noted]))
    (found,), _ = match(float_model(), model)
    np.testing.assert_array_equal(np.asarray(found.scale, np.float32), noted.scale)
    assert found.zero_point == [0, -3]
    assert (found.name, found.note, found.channels_last) == ("mine", "a note", True)


def test_one_number_where_all_are_the_same():
    """Equal scales are written as one, and defaults not at all."""
    plain = LayerPair("n", "t", "s", np.full(3, 0.1, np.float32), np.zeros(3, np.int32))
    (entry,) = json.loads(record([plain]))
    assert entry == {"name": "n", "tensor": "t", "stored": "s", "scale": 0.1, "zero_point": 0}


def test_layers_that_only_the_int8_model_has():
    """Layers of the int8 model alone are named as unmatched."""
    model = integer_model()
    there, gone = (
        LayerPair("a", "nowhere", "c/int8", 1.0),
        LayerPair("b", "c", "no such tensor", 1.0),
    )
    model.metadata_props.add(key=keys.LAYERS, value=record([there, gone]))
    found = match(float_model(), model)
    assert found == ([], ("a",))


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '[{"name": "x"}]', *(entry(**odd) for odd in ODD)]
)
def test_a_note_that_somebody_changed(text):
    """Edited metadata gives no layers."""
    model = integer_model()
    model.metadata_props.add(key=keys.LAYERS, value=text)
    assert match(float_model(), model)[0] == []


def test_an_old_model_of_ours():
    """A model of an npuconv without that metadata gives no layers."""
    model = integer_model()
    model.metadata_props.add(key="npuconv.version", value="0.0.1")
    assert match(float_model(), model)[0] == []


def test_scales_of_inputs_and_outputs():
    """Scales of inputs and outputs are read as ``--io int8`` notes them."""
    model = integer_model()
    model.metadata_props.add(key="npuconv.scale.x", value="0.5")
    assert scales(model) == {"x": 0.5}


def test_what_is_usual_is_taken():
    """Usual metadata is accepted."""
    model = integer_model()
    model.metadata_props.add(key=keys.LAYERS, value=entry())
    assert len(match(float_model(), model)[0]) == 1


@pytest.mark.parametrize("text", ["abc", "", "nan", "inf", "-1", "0", "1e300"])
def test_scales_that_are_none(text):
    """The error names model and key, and what to do."""
    model = integer_model()
    model.metadata_props.add(key="npuconv.scale.x", value=text)
    with pytest.raises(
        ModelError, match=r"m\.onnx: .*npuconv\.scale\.x = .*convert the model again"
    ):
        scales(model, "m.onnx")
