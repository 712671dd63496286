"""Preparation of images, kept in the metadata of an integer model and read again."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from PIL import Image

import npuconv
from npuconv.config import Preprocess
from npuconv.data import preparation
from npuconv.errors import ModelError
from npuconv.evaluate.pairs import GUESSED
from npuconv.evaluate.run_parts import run_parts
from npuconv.evaluate.split import split
from npuconv.evaluate.vectors import vectors
from npuconv.tflite import flatbuffer
from support.builders import Net

X = (1, 3, 32, 32)


def model() -> onnx.ModelProto:
    """Return a model of pictures."""
    return Net(x=X).conv("x", (4, 3, 3, 3), name="conv").model()


def carrying(text: str) -> onnx.ModelProto:
    """Return a model that says this of images."""
    found = model()
    onnx.helper.set_model_props(found, {preparation.KEY: text} if text else {})
    return found


def kept(proto: onnx.ModelProto) -> dict:
    """Return what a model says of images."""
    texts = [e.value for e in proto.metadata_props if e.key == preparation.KEY]
    return json.loads(texts[0]) if texts else {}


@pytest.fixture
def photos(tmp_path):
    """Make a folder of images."""
    (tmp_path / "photos").mkdir()
    rng = np.random.default_rng(0)
    for number in range(3):
        pixels = rng.integers(0, 256, (40, 50, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"photos/{number}.png")
    return tmp_path / "photos"


@pytest.fixture
def converted(photos):
    """Return a model that was calibrated on them."""
    settings = {"preset": "imagenet", "color": "bgr"}
    return npuconv.convert(model(), calibration=photos, preprocess=settings).model


@pytest.mark.parametrize(
    "keys",
    [
        {"preset": "imagenet", "color": "bgr", "layout": "nhwc"},
        {"preset": "raw", "resize": (256,), "crop": (224, 224)},
        {"mean": (1.5,), "std": (2.0, 3.0, 4.0), "resize": (10, 20)},
    ],
)
def test_there_and_back(keys):
    """The preparation read is the one recorded, by its name where it has one."""
    given = Preprocess(**keys)
    found = preparation.read(carrying(preparation.record(given, "given")), "m.onnx")
    assert found == preparation.Preparation(given, "given to convert, kept in m.onnx", False)


def test_nothing_to_keep():
    """A model without a normalization has no entry, and none is found."""
    assert preparation.record(Preprocess(preset="none"), "given") == ""
    assert preparation.read(carrying(""), "m") is None


def test_images_are_kept(converted):
    """Mean and std are in the order of the channels of the input."""
    assert kept(converted) == {
        "certainty": "given",
        "color": "bgr",
        "layout": "nchw",
        "mean": [103.53, 116.28, 123.675],
        "std": [57.375, 57.12, 58.395],
    }


def test_arrays_are_as_they_are():
    """Arrays are used as they are, so no entry is written."""
    data = {"x": np.zeros((2, *X[1:]), np.float32)}
    assert kept(npuconv.convert(model(), calibration=data, preprocess="unit").model) == {}


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        (X, {"color": "rgb", "layout": "nchw", "mean": [123.675, 116.28, 103.53]}),
        ((1, 1, 32, 32), {"color": "gray", "layout": "nchw", "mean": [pytest.approx(114.495)]}),
    ],
)
def test_builtin_pictures_are_kept(shape, wanted):
    """Layout and colour are those of the input, so that image files become the same."""
    net = Net(x=shape).conv("x", (4, shape[1], 3, 3)).model()
    found = kept(npuconv.convert(net, preprocess="imagenet").model)
    assert {key: found[key] for key in wanted} == wanted


def test_the_layout_of_the_input_is_kept():
    """A model that transposes its input takes images as NHWC."""
    net = Net(x=(1, 32, 32, 3)).op("Transpose", "x", perm=[0, 3, 1, 2])
    found = kept(npuconv.convert(net.conv(net.last, (4, 3, 3, 3)).model()).model)
    assert found["layout"] == "nhwc"
    assert found["certainty"] in ("inferred", "guessed")


def test_an_inferred_mean_is_in_the_order_of_the_input():
    """ImageNet's, which PaddlePaddle's models want, of blue, green and red."""
    net = Net(x=X)
    net.op("Conv", "x", net.constant(np.ones((8, 3, 3, 3), np.float32)))
    source = net.model(producer_name="PaddlePaddle")
    found = kept(npuconv.convert(source, preprocess={"color": "bgr"}).model)
    assert found["mean"] == [103.53, 116.28, 123.675]


def test_tflite_keeps_it():
    """A TFLite file has the same entry in its metadata."""
    pytest.importorskip("tflite")
    made = npuconv.convert(model(), "ethos-u55", preprocess="unit")
    said = flatbuffer.read_metadata(made.tflite.data)[preparation.KEY]
    assert json.loads(said) == kept(made.model)


def test_verify_reads_it(converted, photos):
    """Images become what convert made of them, and the source says so."""
    found = npuconv.verify(model(), converted, photos)
    same = npuconv.verify(
        model(), converted, photos, preprocess={"preset": "imagenet", "color": "bgr"}
    )
    assert found.total == same.total
    assert found.source == "photos, imagenet, color bgr (given to convert, kept in test)"
    assert same.source == "photos, imagenet, color bgr"


def test_flags_win(converted, photos):
    """Options that are given count as a whole, whatever the model says."""
    found = npuconv.verify(model(), converted, photos, preprocess="unit")
    assert found.source == "photos, unit"


def test_builtin_pictures_follow_it(converted):
    """Built-in pictures are normalized as in the conversion."""
    assert "imagenet, color bgr (given" in npuconv.verify(model(), converted).source


def test_a_guess_is_said():
    """A guess of convert stays a guess."""
    text = preparation.record(Preprocess(preset="unit"), "guessed")
    found = npuconv.verify(model(), carrying(text))
    assert GUESSED in found.warnings


@pytest.mark.parametrize("text", ["hello", "{}", '{"mean":[0],"std":[0]}', "[" * 9999])
def test_a_damaged_entry(text, photos):
    """A damaged entry is refused where it is needed, and nowhere else."""
    wrong = carrying(text)
    with pytest.raises(ModelError, match=r"npuconv\.preprocess = .*no preprocessing"):
        npuconv.verify(model(), wrong, photos)
    assert npuconv.verify(model(), wrong, photos, preprocess="unit").samples == 3
    assert npuconv.verify(model(), wrong, {"x": np.zeros((1, *X[1:]), np.float32)}).samples == 1


def test_vectors_and_run_read_it(converted, photos, tmp_path):
    """The other two commands that run an integer model on samples read it, too."""
    onnx.save(converted, tmp_path / "m.onnx")
    wanted = "photos, imagenet, color bgr (given to convert, kept in m.onnx)"
    made = vectors(tmp_path / "m.onnx", tmp_path / "v", photos)
    assert made.manifest["source"] == wanted
    parts = split(tmp_path / "m.onnx", tmp_path / "parts")
    assert parts.preprocess == kept(converted)
    assert run_parts(tmp_path / "parts", photos).source == wanted
