"""Tensors that cross to the host for finer steps: where the outputs gain by it."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from builders import Net

PADS = {"pads": [1] * 4}
EDGE = np.array([[0, 0, 0], [1, 0, -0.7], [0, 0, 0]])
BLUR = np.ones((3, 3)) / 9


def hills() -> np.ndarray:
    """Values above 0, large in the middle, and noise on them: float32 [16, 3, 32, 32]."""
    rng, hill = np.random.default_rng(0), np.sin(np.linspace(0, np.pi, 32))
    large = np.outer(hill, hill) * rng.uniform(0.5, 1, (16, 3, 1, 1))
    return np.float32(large + 0.5 * rng.uniform(0, 1, (16, 3, 32, 32)))


def net(kernel: np.ndarray, louder: float = 0.0) -> Net:
    """A map of positive values, and a padded convolution that reads it.

    Args:
        kernel: of that, for each of four channels.
        louder: of what the model puts out beside it, with noise of its own.
    """
    built = Net(x=(1, 3, 32, 32))
    built.op("Conv", "x", built.constant(np.ones((4, 3, 1, 1))), name="first")
    built.op("Relu", to="made")
    weight = built.constant(np.tile(kernel, (4, 1, 1, 1)))
    built.op("Conv", "made", weight, name="second", group=4, to="y", **PADS)
    if louder:
        spread = built.constant(np.full((4, 3, 3, 3), louder))
        built.op("Conv", "x", spread, name="third", to="z", pads=[0, 2, 0, 2]).output("y", "z")
    return built


def convert(built: Net, pad_on_host: str | None = None) -> npuconv.Conversion:
    samples = {"x": hills()}
    options = {"pad_on_host": pad_on_host, "ignore": ["OPS"]}
    return npuconv.convert(built.model(), calibration=samples, **options)


def padded(result: npuconv.Conversion) -> list[str]:
    return [r.node for r in result.report.rewrites if r.pass_name == "pad-on-host"]


def test_it_crosses_where_the_outputs_gain():
    """Its own steps leave more of the layer than is looked at locally, and still cost most."""
    free, fixed = (convert(net(EDGE), way) for way in (None, "host"))
    assert ("second" in padded(free), "second" in padded(fixed)) == (True, False)
    assert free.report.accuracy.sqnr_db > fixed.report.accuracy.sqnr_db + 2
    assert free.report.device.to_device.bytes == fixed.report.device.to_device.bytes + 4 * 34 * 34
    fine, coarse = (
        next(t for t in r.report.quantization.tensors if t.name == "made") for r in (free, fixed)
    )
    assert (fine.zero_point, coarse.zero_point) == (-128, 0)
    assert 2 * fine.scale == pytest.approx(coarse.scale, rel=0.01)


def test_not_where_noise_of_others_is_all_there_is():
    """Two bytes for each value, and nobody would see it."""
    assert "second" not in padded(convert(net(EDGE, louder=9.0)))


def test_not_where_nobody_would_miss_the_steps():
    """A blur takes rounding away."""
    result = convert(net(BLUR))
    assert "second" not in padded(result)
    assert result.report.accuracy.sqnr_db > 38


def test_only_what_matters_crosses():
    """Of two such maps one makes no noise to speak of: it stays where it is."""
    built = net(EDGE)
    built.op("Conv", "x", built.constant(np.ones((4, 3, 1, 1))), name="quiet", to="q")
    built.op("Relu", "q", to="r")
    built.op("Conv", "r", built.constant(np.full((4, 4, 3, 3), 1e-4)), name="still", to="z", **PADS)
    built.output("y", "z")
    assert [name for name in padded(convert(built)) if name in ("second", "still")] == ["second"]


def test_the_same_bytes():
    """Twice the same."""
    first, second = (convert(net(EDGE)).model.SerializeToString() for _ in range(2))
    assert first == second
