"""Findings of calibration: shown, ignored, or a reason to stop, like any other."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from npuconv.calibration.inputs import first_convolution, sample_inputs
from npuconv.config import Preprocess
from npuconv.model import save
from npuconv.quantize import calibration_findings as findings
from npuconv.report import render
from npuconv.samples import open_samples
from npuconv.samples.normalizations import (
    CENTRED,
    HALF,
    IMAGENET,
    RAW,
    SIGNED,
    UNIT,
    guess,
    image_axis,
)
from support.asserts import read
from support.builders import Net

X = ("N", 1, 8, 8)
SAMPLES = {"x": np.random.default_rng(0).uniform(0, 1, (8, 1, 8, 8)).astype(np.float32)}


def dead():
    """A convolution of which a Relu leaves one channel of three."""
    net = Net(x=X)
    weight, bias = net.constant(np.ones((3, 1, 1, 1))), net.constant(np.asarray([0.0, -5, -6]))
    return net.op("Conv", "x", weight, bias, name="conv").op("Relu").model()


def codes(report) -> list[str]:
    return [finding.code for finding in report.findings]


def convert(**options) -> npuconv.Conversion:
    return npuconv.convert(dead(), calibration=SAMPLES, **options)


def test_it_is_in_every_report():
    """Behind the findings of the graph, with all their parts."""
    report = convert().report
    assert "CAL003" in codes(report)
    assert report.summary.verdict == "converted"
    for form in ("text", "markdown", "html", "sarif", "json", "github"):
        assert "CAL003" in render(report, form)


def test_a_check_does_not_know():
    """A check has no statistics."""
    assert "CAL003" not in codes(npuconv.check(dead()))


def test_it_is_ignored_and_selected_like_others():
    """Code and prefix select such findings."""
    assert "CAL003" not in codes(convert(ignore=["CAL"]).report)
    assert codes(convert(select=["CAL003"]).report) == ["CAL003"]


def test_a_warning_stops_where_warnings_do():
    """No model then, but the report of what was found."""
    with pytest.raises(npuconv.UnsupportedModelError) as caught:
        convert(fail_on="warning", select=["CAL"])
    report = caught.value.report
    assert codes(report) == ["CAL003"]
    assert (report.summary.verdict, report.summary.exit_code) == ("refused", 1)
    assert convert(fail_on="warning", ignore=["CAL"], select=["QNT"]).model


def test_nothing_is_calibrated_nothing_is_said():
    """Weights alone need no samples."""
    assert "CAL003" not in codes(convert(format="weights").report)


PIXELS = np.linspace(0, 255, 4 * 3 * 16 * 16, dtype=np.float32).reshape(4, 3, 16, 16)
ALL = (RAW, UNIT, SIGNED, IMAGENET, CENTRED, HALF)


def run(proto, array: np.ndarray) -> findings.NormalizationTrials | None:
    model = read(proto)
    first = first_convolution(model)
    assert first is not None
    plain = save.to_proto(model)
    inputs, _ = sample_inputs(model, plain, None)
    samples = open_samples({"x": array}, inputs, Preprocess())
    return findings.run_trials(model, plain, samples, first)


@pytest.mark.parametrize("item", ALL, ids=lambda item: item.name)
def test_a_normalization_is_recognized_by_its_range(item):
    """The range tells the normalization, which can be undone on either axis."""
    assert guess(item.apply(PIXELS, 1)) == item
    np.testing.assert_allclose(item.undo(item.apply(PIXELS, 1), 1), PIXELS, atol=1e-3)
    last = PIXELS.transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(item.apply(last, 3), item.apply(PIXELS, 1).transpose(0, 2, 3, 1))


@pytest.mark.parametrize("values", [[-300.0, 300.0], [0.0, 0.0], [0.0, 1e9], [-1.0, -0.5]])
def test_other_ranges_say_nothing(values):
    """Ranges that hold none of the usual ones well give no normalization."""
    assert guess(np.asarray(values, np.float32)) is None


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((1, 3, 8, 8), 1), ((1, 8, 8, 1), 3), ((1, 4, 9, 9), 1), ((1, 16, 8, 8), None),
     ((1, 3, 8), None), ((1, 8, 8, 3, 1), None), ((1, 3, 1, 8), None)],
)  # fmt: skip
def test_images_have_one_three_or_four_channels(shape, axis):
    """Images have 1, 3 or 4 channels, first or last, beside two longer axes."""
    assert image_axis(shape) == axis


def test_what_is_given_comes_first():
    """The normalization of the samples comes first, then the candidates."""
    found = run(Net(x=("N", 3, 16, 16)).conv("x").model(), PIXELS / 255)
    assert found is not None
    assert found.given == UNIT
    assert list(found.profiles) == [UNIT, SIGNED, RAW]
    assert not found.is_image_to_image


def test_a_model_that_makes_images():
    """An output with as many colours and at least the extents is an image."""
    net = Net(x=("N", 3, 16, 16)).conv("x", (3, 3, 3, 3), pads=[1, 1, 1, 1])
    found = run(net.model(), PIXELS / 255)
    assert found is not None
    assert found.is_image_to_image


@pytest.mark.parametrize("build", [
    lambda: Net(x=("N", 3, 16, 16)).conv("x").op("Elu").model(),
    lambda: Net(x=("N", 3, 16, 16)).op("Transpose", perm=[0, 1, 3, 2]).conv().model(),
    lambda: Net(x=("N", 3, 16, 16)).pad([0, 0, 1, 1, 0, 0, 1, 1]).conv().model(),
])  # fmt: skip
def test_what_may_stand_before_the_first_convolution(build):
    """Order, padding, scale and offset may stand before the first convolution."""
    assert run(build(), PIXELS) is not None


def test_sound_is_no_image():
    """Sound has no other normalization to try."""
    sound = np.linspace(-1, 1, 4 * 1 * 64, dtype=np.float32).reshape(4, 1, 64)
    assert run(Net(x=("N", 1, 64)).conv("x", (4, 1, 3)).model(), sound) is None


def test_other_ranges_are_not_tried():
    """Samples of an unknown range are not tried."""
    assert run(Net(x=("N", 3, 16, 16)).conv("x").model(), PIXELS * 7) is None
