"""Tests of normalization-implausible."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from npuconv.evaluate import interval
from npuconv.report import words
from support.asserts import calibrated, findings
from support.builders import Net

CODE = "CAL001"
X = ("N", 3, 16, 16)
# What is seen in pictures is larger than a pixel.
PIXELS = np.kron(np.random.default_rng(1).uniform(0, 255, (8, 3, 4, 4)), np.ones((4, 4)))


def trained(mean: float = 0.5, std: float = 0.29, *, constant: bool = False):
    """Convolution and BatchNormalization whose statistics are of inputs of this mean and std."""
    rng = np.random.default_rng(0)
    weight = rng.normal(0, 0.3, (8, 3, 3, 3)).astype(np.float32)
    means = mean * weight.sum(axis=(1, 2, 3))
    variances = std**2 * np.square(weight).sum(axis=(1, 2, 3))
    scale = np.ones(8) if constant else rng.uniform(0.5, 1.5, 8)
    shift = np.zeros(8) if constant else rng.normal(0, 0.5, 8)
    net = Net(x=X)
    net.op("Conv", "x", net.constant(weight), name="stem")
    numbers = [net.constant(part) for part in (scale, shift, means, variances)]
    net.op("BatchNormalization", net.last, *numbers).op("Relu")
    return net.conv(net.last, (4, 8, 1, 1), name="head").model()


def folded(mean: float, std: float):
    """The same network without the BatchNormalizations: only biases tell."""
    rng = np.random.default_rng(0)
    net = Net(x=X)
    channels, centre, size = 3, mean, std
    for layer in range(3):
        weight = rng.normal(0, 1, (16, channels, 3, 3)).astype(np.float32)
        weight /= size * np.sqrt(np.square(weight).sum(axis=(1, 2, 3), keepdims=True))
        bias = rng.normal(0, 0.5, 16) - centre * weight.sum(axis=(1, 2, 3))
        net.op("Conv", net.last, net.constant(weight), net.constant(bias), name=f"conv{layer}")
        net.op("Relu")
        channels, centre, size = 16, 0.45, 0.6
    return net.op("GlobalAveragePool").model()


FIRES = [
    lambda: trained(mean=127.5, std=74.0),
    lambda: trained(mean=1.0, std=0.05),
    lambda: folded(127.5, 74.0),
]
SILENT = [
    trained,
    lambda: trained(mean=1.0, std=0.05, constant=True),
    lambda: folded(0.5, 0.29),
    lambda: Net(x=X).conv("x").model(),
    lambda: Net(x=X).op("Relu").model(),
    lambda: Net(x=("N", 3)).op("Relu").model(),
]


def said(model, pixels: np.ndarray) -> str:
    found = [f for f in calibrated(model, {"x": pixels.astype(np.float32)}) if f.code == CODE]
    return found[0].message if found else ""


def test_batch_normalization_tells():
    """The node, what was seen of it, and what training saw."""
    (found,) = findings(FIRES[0](), CODE)
    assert (found.node, found.op_type) == ("stem", "Conv")
    assert "BatchNormalization says that the standard deviation of what" in found.message
    assert "look like 0..1, the model as if trained on 0..255 (--pre" in found.message


def test_biases_tell_where_it_was_folded():
    """Such biases are far larger than the outputs, and plain pixels would fit."""
    text = said(folded(127.5, 74.0), PIXELS / 255)
    assert "the size of the first biases; the first biases subtract a mean pixel of 1" in text
    assert "look like 0..1, the model as if trained on 0..255 (--preprocess raw)" in text
    assert not said(folded(127.5, 74.0), PIXELS)


def test_pixels_for_a_model_of_small_numbers():
    """The biases subtract a mean pixel of 0..1."""
    text = said(folded(0.5, 0.29), PIXELS)
    assert "the first biases subtract a mean pixel of 0." in text
    assert "look like 0..255, the model as if trained on 0..1 (--preprocess unit)" in text


@pytest.mark.parametrize(
    ("numbers", "pixels", "expected"),
    [
        ((0.0, 0.58), PIXELS / 255, "-1..1 (--preprocess signed)"),
        ((0.5, 0.29), PIXELS / 127.5 - 1, "0..1 (--preprocess unit)"),
    ],
)
def test_an_interval_for_the_other(numbers, pixels, expected):
    """BatchNormalization tells 0..1 from -1..1."""
    assert expected in said(trained(*numbers), pixels)


def test_grey_pictures_have_no_mean_colour():
    """Samples of one channel that look like those minus a mean colour are not judged."""
    net = Net(x=("N", 1, 16, 16))
    net.op("Conv", "x", net.random(8, 1, 3, 3), net.constant(np.full(8, 0.1)))
    assert not said(net.model(), (PIXELS[:, :1] - 120) / 58)


def test_made_up_samples_are_not_judged():
    """Made-up samples need not be like those of training."""
    from npuconv import convert

    report = convert(folded(127.5, 74.0), input_shape={"x": [1, 3, 16, 16]}).report
    assert CODE not in {f.code for f in report.findings}


@pytest.mark.parametrize(("preset", "fires"), [("unit", True), ("raw", False)])
def test_a_normalization_that_is_given_for_built_in_pictures(preset, fires):
    """A normalization of the user is judged by the model, also without samples."""
    shape = {"x": [1, 3, 16, 16]}
    model = folded(127.5, 74.0)
    report = npuconv.convert(model, input_shape=shape, preprocess={"preset": preset}).report
    assert (CODE in {f.code for f in report.findings}) == fires


def test_what_normalizes_itself_is_not_judged():
    """An InstanceNormalization takes scale and offset out."""
    net = Net(x=X).conv("x", (4, 3, 3, 3))
    net.op("InstanceNormalization", net.last, net.constant(np.ones(4)), net.constant(np.ones(4)))
    assert not said(net.model(), PIXELS)


def test_the_verdict_is_amber_and_the_interval_wider():
    """The report doubts figures of such samples, unless the user ignores the rule."""
    samples = {"x": np.tile(PIXELS / 255, (2, 1, 1, 1)).astype(np.float32)}
    doubted, trusted = (
        npuconv.convert(folded(127.5, 74.0), calibration=samples, ignore=codes).report
        for codes in ((), (CODE,))
    )
    assert doubted.is_doubtful
    assert words.verdict_label(doubted) == "CONVERTED"
    lowered = trusted.accuracy.interval_db[0] - doubted.accuracy.interval_db[0]
    assert lowered == pytest.approx(interval.MADE_UP_DB, abs=0.11)
    assert trusted.accuracy.interval_db[1] == doubted.accuracy.interval_db[1]
