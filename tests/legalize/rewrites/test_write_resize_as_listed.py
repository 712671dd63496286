"""Tests of write-resize-as-listed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import npuconv
from npuconv.config import Options
from support.asserts import Passes, builtin, read, run_pass, same_numbers
from support.builders import Net
from support.target_files import chip

NAME = "write-resize-as-listed"
MODES = ["half_pixel", "pytorch_half_pixel", "align_corners"]  # without asymmetric
HALF_PIXEL = chip("Resize", coordinate_mode={"one_of": MODES})
ONE_MODE = {
    mode: chip("Resize", coordinate_mode={"one_of": [mode]})
    for mode in ("half_pixel", "asymmetric", "align_corners")
}


def resize(scales=(1, 1, 2, 2), shape=(1, 2, 5, 3), mode="nearest", opset=17, **attrs):
    net = Net(x=shape, opset=opset)
    factors = net.constant(np.asarray(scales, np.float32))
    return net.op("Resize", "x", "", factors, mode=mode, **attrs).model()


def asymmetric(**settings):
    floor = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return resize(**{**floor, **settings})


FIRES = [
    (asymmetric, HALF_PIXEL),
    (lambda: asymmetric(scales=(1, 1, 3, 2)), HALF_PIXEL),
    (lambda: asymmetric(opset=19, scales=(2, 2), axes=[2, 3]), HALF_PIXEL),
    (lambda: asymmetric(shape=("n", 2, 5, 3)), HALF_PIXEL),  # the batch is not resized
    (lambda: asymmetric(shape=(1, 2, 6, 4), scales=(1, 1, 0.5, 0.5)), HALF_PIXEL),
]
SILENT = [
    asymmetric,  # the target does not list Resize
    (asymmetric, builtin("ethos-u55")),  # takes it as it is
    (lambda: asymmetric(scales=(1, 1, 1.4, 2), shape=(1, 2, 10, 3)), HALF_PIXEL),
    (lambda: asymmetric(shape=(1, 2, "h", 3)), HALF_PIXEL),
    (lambda: asymmetric(mode="linear"), HALF_PIXEL),
    (lambda: asymmetric(mode="cubic"), HALF_PIXEL),
    (lambda: resize(coordinate_transformation_mode="tf_crop_and_resize"), HALF_PIXEL),
]


@pytest.mark.parametrize(
    ("mode", "target"), [*(("nearest", mode) for mode in ONE_MODE), ("linear", "half_pixel")]
)
def test_same_numbers_in_every_mode(mode, target):
    """All modes, roundings and factors: what is rewritten has the same results."""
    coordinates = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
    roundings = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    fired = 0
    for how, rounding, factor in itertools.product(coordinates, roundings, (0.5, 1.5, 2, 3)):
        proto = resize(
            (1, 1, factor, 2), (1, 1, 6, 1), mode,
            coordinate_transformation_mode=how, nearest_mode=rounding,
        )  # fmt: skip
        model = read(proto)
        count = run_pass(NAME, model, Passes(ONE_MODE[target], Options()))
        fired += count
        if count:
            same_numbers(proto, model)
    assert fired


def test_the_device_upsamples():
    """Between convolutions of RKNN nothing crosses."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3))
    factors = net.constant(np.asarray((1, 1, 2, 2), np.float32))
    attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    net.op("Resize", net.last, "", factors, mode="nearest", **attrs)
    report = npuconv.check(net.conv(net.last, (2, 4, 3, 3)).model(), "rknn")
    assert report.summary.transitions == 2
