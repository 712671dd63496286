"""The normalization of training, inferred from a model."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.config import Options
from npuconv.data import InputSpec
from npuconv.data.infer_normalization import KNOWN, infer
from npuconv.data.normalizations import (
    CENTRED,
    IMAGENET,
    RAW,
    SIGNED,
    UNIT,
    PixelNormalization,
)
from npuconv.data.pictures import draw
from npuconv.legalize.legal import legalize
from support.builders import Net

SIZE = (3, 32, 32)


def found(net: Net, producer: str = "pytorch", shape=(1, *SIZE), name: str = "x"):
    proto = net.model()
    proto.producer_name = producer
    work = legalize(proto, Options())
    spec = InputSpec(name, np.dtype(np.float32), shape)
    return infer(work.model, spec)


def trained(on: PixelNormalization) -> Net:
    """Return a convolution and a BatchNormalization with its statistics for pictures."""
    pixels = np.stack([draw(SIZE, "nchw", k) for k in range(8)])
    x = on.apply(pixels, 1)
    weight = np.random.default_rng(0).normal(size=(16, 3, 1, 1)).astype(np.float32)
    made = np.einsum("mc,nchw->nmhw", weight[:, :, 0, 0].astype(float), x.astype(float))
    net = Net(x=(1, *SIZE))
    net.op("Conv", "x", net.constant(weight), name="first")
    moments = made.mean(axis=(0, 2, 3)), made.var(axis=(0, 2, 3))
    parts = (np.ones(16), np.zeros(16), *moments)
    constants = [net.constant(np.float32(part)) for part in parts]
    return net.op("BatchNormalization", net.last, *constants, epsilon=1e-5, to="y")


@pytest.mark.parametrize("on", [RAW, UNIT, SIGNED, IMAGENET, CENTRED], ids=lambda one: one.name)
def test_batch_normalization_tells(on):
    """The statistics of training outweigh the habits of the framework."""
    one = found(trained(on))
    assert one.normalization == on
    assert one.is_clear
    assert any("BatchNormalization" in reason for reason in one.reasons)


def plain(bias: np.ndarray, weight: np.ndarray | None = None) -> Net:
    if weight is None:
        weight = np.random.default_rng(1).normal(size=(len(bias), 3, 3, 3)) / 5
    net = Net(x=(1, *SIZE))
    return net.op("Conv", "x", net.constant(np.float32(weight)), net.constant(np.float32(bias)))


@pytest.mark.parametrize(("size", "numbers"), [(150.0, True), (0.7, False)])
def test_the_size_of_biases_tells_the_scale(size, numbers):
    """Biases are of the size of the layer's output."""
    bias = np.random.default_rng(2).normal(size=32) * size
    one = found(plain(bias))
    assert (one.normalization in (RAW, CENTRED)) == numbers


@pytest.mark.parametrize(("mean", "wanted"), [(0.45, UNIT), (115.0, RAW)])
def test_biases_take_off_the_mean_pixel(mean, wanted):
    """Biases show the mean pixel where pixels are not centred."""
    rng = np.random.default_rng(3)
    weight = rng.normal(0.1, 1, size=(32, 3, 3, 3)) / 5
    bias = -mean * weight.sum(axis=(1, 2, 3)) + mean * rng.normal(size=32) / 10
    one = found(plain(bias, weight), producer="tf2onnx")
    assert one.normalization == wanted
    assert any("mean pixel" in reason for reason in one.reasons)


@pytest.mark.parametrize(("scale", "wanted"), [(1 / 255, RAW), (1 / 127.5, RAW), (255.0, UNIT)])
def test_a_model_that_scales_its_input(scale, wanted):
    """A model that scales its input takes pixels, or makes them."""
    net = Net(x=(1, *SIZE))
    net.op("Mul", "x", net.constant(np.float32(scale))).op("Relu")
    one = found(net.conv("", (8, 3, 3, 3)))
    assert one.normalization == wanted
    assert "the model itself" in one.phrase


def test_the_habits_of_frameworks():
    """The habits of frameworks decide if biases and statistics are missing: a guess."""
    net = Net(x=(1, *SIZE))
    net.op("Conv", "x", net.constant(np.ones((8, 3, 3, 3), np.float32)))
    by = {p: found(net, producer=p) for p in ("tf2onnx", "caffe2", "pytorch", "PaddlePaddle")}
    wanted = {"tf2onnx": SIGNED, "caffe2": CENTRED, "pytorch": UNIT, "PaddlePaddle": IMAGENET}
    assert {name: one.normalization for name, one in by.items()} == wanted
    for one in by.values():
        assert not one.is_clear
        assert "a guess" in one.phrase
        assert one.runner_up.name in one.phrase
        assert one.runner_up != one.normalization


def test_what_the_model_looks_like():
    """Grey images and models that make images want 0..1; lines of text -1..1."""
    grey = Net(x=(1, 1, 28, 28)).conv("x", (8, 1, 3, 3))
    assert found(grey, shape=(1, 1, 28, 28)).normalization == UNIT
    wide = Net(x=(1, 3, 32, 256)).conv("x", (8, 3, 3, 3))
    assert found(wide, "PaddlePaddle", (1, 3, 32, 256)).normalization == SIGNED
    image = Net(x=(1, *SIZE)).conv("x", (3, 3, 3, 3), pads=[1] * 4, to="y")
    plain_one = Net(x=(1, *SIZE)).conv("x", (8, 3, 3, 3), to="y")
    assert found(image).share > found(plain_one).share


def test_metadata():
    """Metadata outweighs habits."""
    net = Net(x=(1, *SIZE)).conv("x", (8, 3, 3, 3))
    proto = net.model()
    proto.metadata_props.add(key="Image.NominalPixelRange", value="NominalRange_0_255")
    work = legalize(proto, Options())
    spec = InputSpec("x", np.dtype(np.float32), (1, *SIZE))
    one = infer(work.model, spec)
    assert one.normalization == RAW
    assert one.is_clear


def test_shares():
    """Shares are of all candidates together, and the same every time."""
    one, again = (found(plain(np.ones(8))) for _ in range(2))
    assert 1 / len(KNOWN) <= one.share <= 1
    assert one == again
