"""Builtin data: the choice of samples for a model without data, and its sentences."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import npuconv
from npuconv.data import pictures
from support.builders import Net

SHAPE = (1, 3, 32, 32)


@pytest.fixture(params=[True, False], ids=["photographs", "made"])
def photographs(request, monkeypatch):
    """Run with photographs and without."""
    if not request.param:
        monkeypatch.setattr(pictures, "folder", lambda: None)
    elif not pictures.folder():
        pytest.skip("npuconv[photos] is not installed")
    return request.param


def image(shape=SHAPE) -> Net:
    return Net(x=shape).conv("x", (8, shape[1], 3, 3), to="y")


def convert(net: Net, **options):
    said: list[str] = []
    report = npuconv.convert(
        net.model(), progress=lambda stage, *_: said.append(stage), **options
    ).report
    return report, next(one for one in said if one.startswith("assumed: "))


def test_a_normalization_that_is_given(photographs):
    """A given normalization is used as it is."""
    report, said = convert(image(), preprocess={"preset": "imagenet"})
    assert "imagenet (given)" in said
    assert report.calibration.certainty == "given"
    assert report.calibration.pictures == ("photographs" if photographs else "made-up")
    assert report.quantization.source.endswith("imagenet (given)")
    assert report.quantization.synthetic != photographs
    assert bool(report.summary.warnings) != photographs
    x = report.quantization.tensors[0]
    assert -2.3 < x.minimum < -1
    assert 1 < x.maximum < 2.8


@pytest.mark.usefixtures("photographs")
def test_a_guess():
    """The report says that the normalization is a guess, and how to give the right one."""
    report, said = convert(image())
    assert report.calibration.certainty == "guessed"
    assert "a guess" in said
    assert report.quantization.synthetic
    (warning,) = [w for w in report.summary.warnings if "guess" in w]
    assert "--preprocess" in warning
    assert report.calibration.runner_up in warning
    assert "guess" in report.summary.headline


@pytest.mark.usefixtures("photographs")
def test_without_a_guess():
    """--preprocess none leaves the normalization unknown, and the report says so."""
    report, said = convert(image(), preprocess={"preset": "none"})
    assert report.calibration.certainty == "unknown"
    assert "unknown" in said
    assert report.quantization.synthetic


@pytest.mark.parametrize("preset", ["unit", "none", None])
def test_made_up_pictures_say_what_to_install(monkeypatch, preset):
    """One warning names the package to install and any other doubt."""
    monkeypatch.setattr(pictures, "folder", lambda: None)
    report, _ = convert(image(), preprocess={"preset": preset})
    assert any("npuconv[photos]" in warning for warning in report.summary.warnings)


@pytest.mark.parametrize("shape", [(1, 16000), (1, 1, 40), (1, 64, 8, 8), (1, 1, 49, 10)])
def test_models_that_read_no_images(shape):
    """Other inputs get made-up numbers, and accuracy is reported as unproven."""
    net = Net(x=shape)
    if len(shape) == 2:
        net.op("Reshape", "x", net.constant(np.asarray([1, 1, -1])), to="r")
        net.conv("r", (2, 1, 5))
    else:
        net.conv("x", (4, shape[1], *[1] * (len(shape) - 2)))
    report, said = convert(net)
    assert "made-up numbers" in said
    assert report.calibration.pictures == "none"
    assert report.calibration.certainty == "unknown"
    assert report.summary.headline.endswith("ranges come from made-up numbers")


@pytest.mark.parametrize(("channels", "note"), [(1, ""), (4, "the fourth channel is brightness")])
def test_other_channels(channels, note):
    """The sentence names an assumption about channels."""
    report, said = convert(image((1, channels, 32, 32)), preprocess={"preset": "unit"})
    assert said.endswith(note) if note else "channel" not in said
    assert report.calibration.certainty == "given"


def test_an_unknown_size():
    """A usual size is taken for open extents, and reported."""
    report, _ = convert(image(("N", 3, "h", "w")), preprocess={"preset": "unit"})
    assert any("assumed is" in w for w in report.summary.warnings)


def test_check_says_what_convert_would_take():
    """The report of check holds the same choice."""
    proto = image().model()
    checked, done = npuconv.check(proto), npuconv.convert(proto).report
    assert checked.calibration == done.calibration
    given = npuconv.convert(proto, calibration={"x": np.zeros((4, 3, 32, 32), np.float32)}).report
    assert given.calibration is None


def test_only_one_of_two():
    """A mean without a standard deviation is refused, and the other way round."""
    for call in (npuconv.check, npuconv.convert):
        with pytest.raises(npuconv.UsageError, match="--mean without --std"):
            call(image().model(), preprocess={"mean": (0.5,)})


def test_channels_last_and_turned_round():
    """BGR and NHWC give the same pictures in another order."""
    net = Net(x=(1, 32, 32, 3)).op("Transpose", perm=[0, 3, 1, 2], to="t").conv("t", (8, 3, 3, 3))
    rgb, _ = convert(net, preprocess={"preset": "unit"})
    bgr, _ = convert(net, preprocess={"preset": "unit", "color": "bgr"})
    assert rgb.calibration.certainty == bgr.calibration.certainty == "given"
    scales = [[t.scale for t in r.quantization.tensors] for r in (rgb, bgr)]
    assert scales[0] != scales[1]


def test_the_same_bytes():
    """Two runs write the same bytes."""
    first, second = (npuconv.convert(image().model()).model.SerializeToString() for _ in range(2))
    assert first == second


def integer_image() -> Net:
    net = Net()
    net.inputs.append(helper.make_tensor_value_info("u", TensorProto.UINT8, SHAPE))
    net.nodes.append(helper.make_node("Cast", ["u"], ["f"], to=TensorProto.FLOAT))
    net.op("Div", "f", net.constant(255.0))
    return net.conv("", (8, 3, 3, 3), to="y")


def test_integer_pixels(photographs):
    """An image of integers gets pictures of whole pixels, whose ranges are those of pictures."""
    report, said = convert(integer_image())
    assert "assumed pixels in 0..255 (clear: input 'u' is uint8)" in said
    assert report.calibration.certainty == "inferred"
    assert report.quantization.synthetic != photographs
    assert report.quantization.tensors[0].maximum > 0.9  # of 1, behind the division
    same, _ = convert(integer_image(), preprocess={"preset": "raw"})
    assert same.quantization.tensors == report.quantization.tensors


def test_flags_that_do_not_fit_the_input():
    """check and convert refuse a normalization of integers, and another layout."""
    for call in (npuconv.check, npuconv.convert):
        with pytest.raises(npuconv.NpuconvError, match="whole numbers, and 'unit' makes others"):
            call(integer_image().model(), preprocess={"preset": "unit"})
        with pytest.raises(npuconv.UsageError, match="--input-layout nhwc: input 'u' is"):
            call(integer_image().model(), preprocess={"layout": "nhwc"})
        with pytest.raises(npuconv.UsageError, match="--input-layout nhwc: input 'x' is"):
            call(image().model(), preprocess={"layout": "nhwc"})


def test_flags_for_images_without_an_image():
    """Flags about images do nothing for numbers, and the report says so."""
    report, _ = convert(Net(x=(1, 1, 64)).conv("x", (4, 1, 3)), preprocess={"preset": "raw"})
    assert any("raw: not used, no input looks like images" in w for w in report.summary.warnings)
