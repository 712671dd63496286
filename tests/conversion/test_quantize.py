"""Steps from the float model to integers: left out one by one, and what each layer adds."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import onnx
import pytest

import npuconv
from npuconv.errors import UsageError
from npuconv.quantize.settings import STEPS
from support.builders import Net

# Steps that can be left out


def photos(count: int = 24) -> dict[str, np.ndarray]:
    """Noise on a background of one colour, normalized to 0..1."""
    rng = np.random.default_rng(4)
    pixels = rng.integers(0, 256, (count, 3, 12, 12))
    pixels[rng.random(pixels.shape) < 0.5] = 201
    return {"x": pixels.astype(np.float32) / np.float32(255)}


def uneven() -> onnx.ModelProto:
    """Layers that give every step something to do."""
    rng, net = np.random.default_rng(1), Net(x=(1, 3, 12, 12))
    first = net.constant(rng.normal(size=(8, 3, 3, 3)))
    net.op("Conv", "x", first, net.constant(np.full(8, 0.3)), name="first", pads=[1] * 4).op("Relu")
    mixing = rng.normal(size=(16, 8, 3, 3))
    mixing[:, 0] *= 40  # alike in what is read, but not in the weights
    net.op("Conv", net.last, net.constant(mixing), name="second").op("Sigmoid")
    return net.conv("", (16, 1, 3, 3), group=16, name="third").model()


@cache
def without(*steps: str) -> npuconv.Conversion:
    return npuconv.convert(uneven(), calibration=photos(), without=steps, verify=False)


@pytest.mark.parametrize("step", sorted({*STEPS} - {"clipping"}))  # this device has no operators
def test_a_step_may_be_left_out(step: str):
    """A missing step gives other integers, and another report."""
    full, bare = without(), without(step)
    assert full.model.SerializeToString() != bare.model.SerializeToString()
    assert full.report.quantization != bare.report.quantization
    assert bare.report.accuracy.sqnr_db > 20


def test_all_steps_may_be_left_out():
    """Ranges as they were seen, weights to the nearest, and nothing for the host to do."""
    report = without(*STEPS).report
    assert {row.method for row in report.quantization.tensors} == {"minmax"}
    assert {row.rounding for row in report.quantization.layers} == {"nearest"}
    assert "pad-on-host" not in {r.pass_name for r in report.rewrites}
    rows = {row.name: row for row in report.quantization.tensors}
    assert rows["x"].zero_point == 0
    assert rows["x"].scale == pytest.approx(1 / 127, rel=1e-3)


def test_what_is_left_out_changes_nothing_else():
    """Each step only what is its own."""
    full, bare = without().report.quantization, without("bias-correction").report.quantization
    assert full.tensors == bare.tensors
    assert not any("bias corrected" in row.rounding for row in bare.layers)
    assert any("bias corrected" in row.rounding for row in full.layers)
    nearest = without("gptq-rounding").report.quantization
    assert not any("GPTQ" in row.rounding for row in nearest.layers)
    assert any("GPTQ" in row.rounding for row in full.layers)


def test_a_misspelled_step():
    """A misspelt step is the user's mistake, and the right ones are named."""
    with pytest.raises(UsageError, match=r"without.*gptq-rounding"):
        npuconv.convert(uneven(), calibration=photos(), without=["gptq"])


# What every layer adds to the error


def shares(end: str = "") -> dict[str, float]:
    """Return the noise shares of three layers, by name."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (8, 3, 3, 3), name="a").op("HardSwish")
    net = net.conv("", (8, 8, 3, 3), name="b").op("HardSwish").conv("", (5, 8, 4, 4), name="c")
    if end:
        net = net.op("Mul", net.last, net.constant(1000.0)).op(end, axis=1)
    x = np.random.default_rng(0).standard_normal((16, 3, 8, 8)).astype(np.float32)
    result = npuconv.convert(net.model(), calibration={"x": x}, ignore=["OPS"])
    return {layer.name: layer.noise_share for layer in result.report.quantization.layers}


def test_a_softmax_that_saturates_does_not_decide():
    """Behind it only the samples count that are nearly even between two classes."""
    found, plain = shares("Softmax"), shares()
    assert sum(plain.values()) == pytest.approx(1, abs=1e-3)
    assert found == pytest.approx(plain, rel=0.02)


def cast(net: Net, to: int) -> Net:
    """The last result as another type."""
    source = net.last
    net.op("Identity", source).nodes[-1].CopyFrom(
        onnx.helper.make_node("Cast", [source], [net.last], to=to)
    )
    return net


def through(kind: int, op: str) -> Callable[[Net], Net]:
    return lambda net: cast(cast(net, kind).op(op), onnx.TensorProto.FLOAT)


def through_a_branch(net: Net) -> Net:
    net.op("Sigmoid", to="s")
    return net.branch(Net(prefix="a").op("Mul", "s", "s"), Net(prefix="b").op("Neg", "s"))


def through_its_shape(net: Net) -> Net:
    return net.op("Sigmoid", to="s").op("Shape", "s").op("Reshape", "s", net.last)


BETWEEN = {
    "an If": through_a_branch,
    "a double": through(onnx.TensorProto.DOUBLE, "Sin"),
    "a double that has a slope": through(onnx.TensorProto.DOUBLE, "Sigmoid"),
    "a half that has a slope": through(onnx.TensorProto.FLOAT16, "Tanh"),
    "its own shape": through_its_shape,
    "what ONNX cannot infer": lambda net: net.op("QuickGelu", domain="com.microsoft"),
    "a reflection": lambda net: net.op(
        "Pad", net.last, net.constant(np.asarray([0, 0, 1, 1, 0, 0, 1, 1])), mode="reflect"
    ),
    "a size of no whole factor": lambda net: net.op(
        "Resize", net.last, "", net.constant(np.float32([1, 1, 1.5, 1.5])), mode="linear"
    ),
    "windows with holes": lambda net: net.op("Sigmoid").op(
        "MaxPool", kernel_shape=[2, 2], dilations=[2, 2], strides=[1, 1]
    ),
    "no way back": lambda net: net.op("Floor"),
}


@pytest.mark.parametrize("percent", [0, 100])
@pytest.mark.parametrize("between", BETWEEN)
def test_every_layer_has_its_share(between: str, percent: float):
    """Whatever the host does between two of them, with a budget and without."""
    net = Net(x=("N", 4, 8, 8)).conv("x", (8, 4, 3, 3), pads=[1] * 4, name="first")
    proto = BETWEEN[between](net).conv("", (4, 8, 1, 1), name="last").model()
    x = np.random.default_rng(0).standard_normal((40, 4, 8, 8)).astype(np.float32)
    report = npuconv.convert(
        proto, calibration={"x": x}, max_extra_macs=percent, verify=False
    ).report
    found = {row.name: row.noise_share for row in report.quantization.layers}
    assert list(found) == ["first", "last"]
    assert min(found.values()) > 0.01
    assert sum(found.values()) == pytest.approx(1, abs=1e-3)
    if percent:
        assert report.quantization.budget.extra_macs > 0
