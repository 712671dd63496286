"""Layers that are split have the integers of the whole."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import npuconv
from npuconv import executor
from support.builders import Net

SAMPLES = [
    {"x": x} for x in np.random.default_rng(7).normal(size=(4, 2, 6, 12, 12)).astype(np.float32)
]


def net(**attrs: object) -> onnx.ModelProto:
    """Two convolutions whose channels differ in size."""
    built = Net(x=SAMPLES[0]["x"].shape)
    weight = np.random.default_rng(1).normal(size=(8, 6, 3, 3))
    scaled = built.constant(weight * np.geomspace(1, 9, 8).reshape(8, 1, 1, 1))
    built.op("Conv", "x", scaled, built.random(8)).op("Relu")
    return built.conv("", (8, 8 // int(attrs.get("group", 1)), 3, 3), **attrs).model()


def made(
    model: onnx.ModelProto, *assume: str, samples: list[dict[str, np.ndarray]] = SAMPLES,
    **options: object,
) -> tuple[int, list[np.ndarray]]:  # fmt: skip
    """Return the number of convolutions of the int8 model, and its outputs."""
    result = npuconv.convert(
        model, calibration=samples, assume=list(assume), verify=False, **options
    ).model
    session = executor.Session(result)
    values = [next(iter(session.run(feed).values())) for feed in samples]
    return sum(node.op_type == "QLinearConv" for node in result.graph.node), values


@pytest.mark.parametrize(("limits", "attrs", "count"), [
    (["weight_n=4", "in_h=8", "in_n=1"], {}, 16),
    (["dilation_h=1", "dilation_w=1"], {"dilations": [2, 2]}, 2),
    (["dilation_h=1", "dilation_w=1", "kernel_h=3", "kernel_w=3"], {"dilations": [2, 2]}, 5),
    (["in_c=6"], {"group": 8}, 3),
    (["stride_h=1", "stride_w=1"], {"strides": [2, 2]}, 2),
])  # fmt: skip
def test_exact_rewrites_have_the_same_integers(limits, attrs, count):
    """Channels, tiles, images, groups, phases: every output of every sample is the same."""
    model = net(**attrs)
    (_, wanted), (number, found) = made(model), made(model, *limits)
    assert number == count
    for a, b in zip(wanted, found, strict=True):  # float convolutions of other shapes differ
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("padding", ["never", "host"])
@pytest.mark.parametrize(("limits", "attrs"), [
    (["in_h=7", "in_w=7"], {}),
    (["pad_left=0"], {}),
    (["dilation_h=1", "dilation_w=1"], {"dilations": [2, 2]}),
    (["in_c=6"], {"group": 8}),
    (["stride_h=1", "stride_w=1"], {"strides": [2, 2]}),
])  # fmt: skip
def test_what_the_device_would_pad_has_zero_point_0(limits, attrs, padding):
    """The host pads what is fitted, and leaves the integers as the device would have them."""
    model = net(pads=[1, 1, 1, 2], **attrs)
    wanted, found = (made(model, *m, pad_on_host=padding)[1] for m in ([], limits))
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_zeros_behind_tiles_bind_no_zero_point():
    """A tensor that the device does not pad has a zero point for each channel, cut or not."""
    built = Net(x=SAMPLES[0]["x"].shape).conv("x", (8, 6, 3, 3))
    model = built.conv("", (8, 8, 3, 3)).model()
    wanted, found = (made(model, *m)[1] for m in ([], ["in_h=5"]))
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_the_host_pads_one_half():
    """The other half alone is cut into int8: only its channels have scales."""
    built = Net(x=SAMPLES[0]["x"].shape).conv("x", (6, 6, 3, 3), pads=[1] * 4, to="a")
    built.op("Softplus", "x", to="b").op("Concat", "a", "b", axis=1)
    model = built.conv("", (8, 12, 3, 3), pads=[1] * 4).model()
    (_, wanted), (number, found) = made(model), made(model, "in_c=6")
    assert number == 3
    assert np.abs(np.subtract(wanted, found)).max() < 0.1 * np.abs(wanted).max()
