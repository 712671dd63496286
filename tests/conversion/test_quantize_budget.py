"""Layers that are bought with multiplications, within a budget."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

import npuconv
from npuconv.errors import UsageError
from support.builders import Net

MACS = 16 * 16 * (8 * 27 + 8 * 9 + 4 * 8)


def network(x: tuple[int | str, ...] = ("N", 3, 16, 16)) -> onnx.ModelProto:
    """Layers on the device, alone and in a row, with and without padding."""
    net = Net(x=x).conv("x", (8, 3, 3, 3), pads=[1] * 4, name="first").op("Relu")
    net.conv(weight=(8, 1, 3, 3), group=8, pads=[1] * 4, name="depthwise").op("Sigmoid")
    return net.conv(weight=(4, 8, 1, 1), name="last").model()


def noise(count: int = 32) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).normal(0, 1, (count, 3, 16, 16)).astype(np.float32)}


@cache
def bought(percent: float | None = None, **options: object) -> npuconv.Conversion:
    asked = {} if percent is None else {"max_extra_macs": percent}
    return npuconv.convert(network(), calibration=noise(), **asked, **options)


def test_nothing_is_bought_unasked():
    """The default repeats no layer."""
    assert bought().report.quantization.budget is None


def test_twice_the_multiplications():
    """Half the steps, more or less: 6 dB at best, 2 at least, and every copy int8."""
    plain, found = bought(), bought(100)
    budget = found.report.quantization.budget
    assert 0 < budget.extra_percent <= 100
    assert found.report.accuracy.sqnr_db > plain.report.accuracy.sqnr_db + 2
    assert budget.simulated_db > budget.before_db + 2
    assert abs(budget.simulated_db - found.report.accuracy.sqnr_db) < 1.5
    convs = [n for n in found.model.graph.node if n.op_type == "QLinearConv"]
    assert len(convs) == 3 + sum(one.times - 1 for one in budget.repeated)


def test_the_report_counts_what_was_bought():
    """MACs of the device are those of the model that is written."""
    report = bought(100).report
    budget, device = report.quantization.budget, report.summary.placement["device"]
    assert device.macs == MACS + budget.extra_macs
    assert budget.extra_percent == pytest.approx(100 * budget.extra_macs / MACS, abs=1e-3)
    assert budget.extra_macs == sum(one.extra_macs for one in budget.repeated)


def test_layers_are_compared_as_their_mean():
    """One row for each layer in its place, whatever it takes; its noise is counted together."""
    found = bought(100).report.quantization
    rows = {row.name: row for row in found.layers}
    assert list(rows) == ["first", "depthwise", "last"]
    assert found.budget.repeated
    for one in found.budget.repeated:
        assert f"mean of {one.times} copies" in rows[one.node].note
    # What the report says of a mean is that of its numbers, not of the integers below them.
    assert all(row.sqnr_db > 35 for row in rows.values())
    assert sum(row.noise_share for row in rows.values()) == pytest.approx(1, abs=0.01)


def test_only_as_much_as_the_goal_takes():
    """A goal that is reached already costs nothing; a little more costs a little."""
    base = bought().report.accuracy.sqnr_db
    assert bought(min_sqnr=base - 3).report.quantization.budget.extra_macs == 0
    found = bought(min_sqnr=base + 1).report
    assert found.accuracy.sqnr_db >= base + 1
    assert 0 < found.quantization.budget.extra_percent < 100


def test_a_goal_beyond_the_limit():
    """The error names both numbers, and the report says what was tried."""
    with pytest.raises(npuconv.UnsupportedModelError) as caught:
        bought(10, min_sqnr=90)
    budget = caught.value.report.quantization.budget
    assert budget.extra_percent <= 10
    assert budget.simulated_db < 90


def test_sizes_come_from_the_samples_where_the_model_has_none():
    """Samples give the cost of layers of open size."""
    proto = network(("N", 3, "H", "W"))
    report = npuconv.convert(proto, calibration=noise(), max_extra_macs=20).report
    assert 0 < report.quantization.budget.extra_macs <= 0.2 * MACS


@pytest.mark.parametrize(("assumed", "biasless"), [((), 0), (("bias=false",), 3)])
def test_a_device_without_biases_repeats_nothing(assumed: tuple[str, ...], biasless: int):
    """No copy of its layers could differ; layers that are repeated count for themselves."""
    budget = bought(100, assume=assumed).report.quantization.budget
    assert (budget.biasless, bool(budget.repeated)) == (biasless, not biasless)


def test_what_stays_float_is_not_bought():
    """Nor what the device does not run."""
    budget = bought(100, keep_float=("last",)).report.quantization.budget
    assert budget.repeated
    assert {one.node for one in budget.repeated} <= {"first", "depthwise"}


@pytest.mark.parametrize(
    ("granularity", "unlisted", "obstacle"),
    [("tensor", "host", "one scale for all weights"), ("channel", "error", "no host for means")],
)
def test_targets_that_cannot_repeat(granularity: str, unlisted: str, obstacle: str, tmp_path: Path):
    """Copies need weight scales of their own, and a host that takes their mean."""
    path = tmp_path / "chip.yaml"
    path.write_text(
        "schema: 1\nname: whole\n"
        "operators: {Conv: {limits: {}}, Relu: {limits: {}}, Sigmoid: {limits: {}}}\n"
        "activations: {dtype: int8, zero_point: [0], granularity: tensor}\n"
        f"weights: {{dtype: int8, symmetric: true, granularity: {granularity}}}\n"
        f"unlisted_operators: {unlisted}\n"
    )
    with pytest.raises(UsageError, match=obstacle):
        bought(10, target=str(path))
