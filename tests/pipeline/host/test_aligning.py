"""Inputs that are on a grid, from the samples to the integers."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import npuconv
from builders import Net

RNG = np.random.default_rng(8)
PIXELS = RNG.integers(0, 256, (16, 3, 16, 16)).astype(np.float32)
PADS = {"pads": [1] * 4}
SIGNED = PIXELS / np.float32(127.5) - np.float32(1)


def net(**attrs) -> Net:
    return Net(x=(1, 3, 16, 16)).conv("x", (4, 3, 3, 3), name="a", **attrs)


def convert(x, built=None, **options):
    options |= {"ignore": ["OPS"]}
    return npuconv.convert((built or net()).model(), calibration={"x": x}, **options)


def moved(result) -> list[str]:
    """What the pass was fired for."""
    return [r.node for r in result.report.rewrites if r.pass_name == "align-input"]


def integers(result, x) -> np.ndarray:
    """What the first convolution of the int8 model reads."""
    model = onnx.ModelProto()
    model.CopyFrom(result.model)
    name = next(n.input[0] for n in model.graph.node if n.op_type == "QLinearConv")
    model.graph.output.append(onnx.ValueInfoProto(name=name))
    session = ort.InferenceSession(model.SerializeToString())
    return np.concatenate([session.run([name], {"x": row[None]})[0] for row in x])


@pytest.mark.parametrize("attrs", [{}, PADS], ids=["bare", "padded"])
def test_every_pixel_has_an_integer(attrs):
    """Half a step off 0, they were two to an integer; the host pads, where it must."""
    result = convert(SIGNED, net(**attrs))
    assert moved(result) == ["a"]
    inner = slice(1, -1) if attrs else slice(None)
    stored = integers(result, SIGNED)[:, :, inner, inner]
    np.testing.assert_array_equal(stored, PIXELS - 128)
    if not attrs:
        with_steps = convert(SIGNED + RNG.normal(0, 1e-3, SIGNED.shape).astype(np.float32))
        assert moved(with_steps) == []
        assert result.report.accuracy.sqnr_db > with_steps.report.accuracy.sqnr_db


def test_what_is_aligned_already():
    """Pixels as they are, and pixels over 255: nothing is moved, and each has its integer."""
    for scale in (1, 1 / 255):
        x = (PIXELS * np.float32(scale)).astype(np.float32)
        result = convert(x)
        assert moved(result) == []
        np.testing.assert_array_equal(integers(result, x), PIXELS - 128)


def test_normalized_in_the_model_and_channels_last():
    """What the host does to the pixels first is taken into account."""
    built = Net(x=(1, 16, 16, 3))
    built.op("Div", "x", built.constant(np.float32(127.5)))
    built.op("Sub", built.last, built.constant(np.ones(3, np.float32)))
    built.op("Transpose", perm=[0, 3, 1, 2]).conv("", (4, 3, 3, 3), name="a")
    x = np.moveaxis(PIXELS, 1, 3).copy()
    result = convert(x, built)
    assert len(np.unique(integers(result, x))) == 256


@pytest.mark.parametrize("options", [{"io": "int8"}, {"pad_on_host": "never"}])
def test_not_where_nobody_can(options):
    """The user gives integers, or the device pads."""
    assert moved(convert(SIGNED, net(**PADS), **options)) == []


def test_not_behind_what_does_more():
    """A Sigmoid leaves no grid."""
    built = Net(x=(1, 3, 16, 16)).op("Sigmoid").conv("", (4, 3, 3, 3), name="a")
    assert moved(convert(SIGNED, built)) == []


def test_samples_that_do_not_agree():
    """Four lie on the grid, the others do not: ranges are as without."""
    x = SIGNED.copy()
    x[6:] += RNG.normal(0, 0.1, x[6:].shape).astype(np.float32)
    result = convert(x)
    assert "exact" not in {t.method for t in result.report.quantization.tensors}
    assert result.report.accuracy.sqnr_db > 35


def test_two_forms_and_the_same_bytes():
    """Explicit conversions hold the same; twice the same."""
    first, second = convert(SIGNED), convert(SIGNED)
    assert first.model.SerializeToString() == second.model.SerializeToString()
    assert convert(SIGNED, format="qdq").report.accuracy.sqnr_db == pytest.approx(
        first.report.accuracy.sqnr_db, abs=1
    )


def test_the_sum_of_two_inputs():
    """It is not twice the first one: each has a grid, but the sum has another."""
    built = Net(x=(1, 3, 16, 16), z=(1, 3, 16, 16)).op("Add", "x", "z").conv("", (4, 3, 3, 3))
    samples = {"x": SIGNED, "z": RNG.normal(0, 1, SIGNED.shape).astype(np.float32)}
    result = npuconv.convert(built.model(), calibration=samples, ignore=["OPS"])
    assert moved(result) == []
