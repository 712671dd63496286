"""Selu as a table: placement, integers in ONNX, vectors and simulator, gradient."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import npuconv
from npuconv.arithmetic.rescaling import TensorScale
from npuconv.emit.int8_operators import listed_operators
from npuconv.emit.tflite.translate import write
from npuconv.evaluate.simulator import as_float
from npuconv.evaluate.vectors import vectors
from npuconv.executor import Session
from npuconv.target import Target
from quantize.gradient_graphs import differentiated
from support.builders import Net, images
from support.int8_operators import MADE, WIDE, Case
from support.kernels import SHIFT, computed, numbers, once
from support.target_files import chip

EVERY = np.arange(-128, 128).astype(np.int8)
ALPHA, GAMMA = 1.6732632, 1.0507010


def selu(x: np.ndarray, alpha: float = ALPHA, gamma: float = GAMMA) -> np.ndarray:
    return gamma * np.where(x > 0, x, alpha * (np.exp(np.minimum(x, 0)) - 1))


@pytest.mark.parametrize("attributes", [{}, {"alpha": 1.5, "gamma": 0.7}])
def test_integers_are_float_rounded_once(attributes):
    """A table is the same on all devices."""
    at = (TensorScale(0.043, 17), TensorScale(0.0215, -5))
    wanted = once(selu(numbers(EVERY, at[0]), **attributes), at[1])
    found = computed("Selu", (EVERY,), at, **attributes)
    assert np.abs(found.astype(int) - wanted).max() <= 1
    assert (found != wanted).sum() <= 1  # the defaults above have eight digits
    np.testing.assert_array_equal(computed("Selu", (EVERY,), at, SHIFT, **attributes), found)


def test_the_simulator_computes_it_between_conversions():
    case = Case("Selu", (WIDE, MADE))
    found = Session(as_float(case.model("shift 12 40 half_up"))).run(case.feeds())["y"]
    wanted = computed("Selu", (case.feeds()["x0"],), case.scales)
    assert np.abs(found.astype(int) - wanted).max() <= 1
    assert (found != wanted).mean() < 0.01  # float32 has other ties


def test_a_device_that_lists_it(tmp_path: Path):
    """It is placed, written between conversions, and has vectors."""
    target = chip("", also={"operators": {"Conv": {}, "Selu": {}}})
    (tmp_path / "chip.yaml").write_text(target.yaml, "utf-8")
    net = Net(x=(1, 3, 6, 6)).conv("x", (4, 3, 1, 1)).op("Selu", name="selu").conv("", (4, 4, 1, 1))
    result = npuconv.convert(
        net.model(), str(tmp_path / "chip.yaml"), calibration={"x": images(4, 3, 6, 6)}
    )
    (operator,) = listed_operators(result.model, Target.load(str(tmp_path / "chip.yaml")))
    assert (operator.op, operator.name) == ("Selu", "selu")
    result.save(tmp_path / "m.onnx")
    folder, data = tmp_path / "v", {"x": images(1, 3, 6, 6)}
    manifest = vectors(
        tmp_path / "m.onnx", folder, data, target=str(tmp_path / "chip.yaml")
    ).manifest
    assert [row["op"] for row in manifest["operators"]] == ["Selu"]


def test_tflite_holds_it_in_float():
    """The operators of its function in ONNX take its place."""
    model = Net(x=(1, 3, 4, 4)).op("Selu", "x").output().model()
    assert write(model).operators.get("EXP") == 1


def test_the_gradient():
    x = np.asarray([[-3.0, -0.5, 0.25, 2.0]], np.float32)
    model = Net(x=x.shape).op("Selu", "x").output().model()
    made, gradients, seeds = differentiated(model, "x")
    (seed,) = seeds.values()
    found = Session(made).run({"x": x, seed: np.ones_like(x)}, [gradients["x"]])[gradients["x"]]
    wanted = (selu(x.astype(float) + 1e-4) - selu(x.astype(float) - 1e-4)) / 2e-4
    np.testing.assert_allclose(found, wanted, rtol=1e-3)
