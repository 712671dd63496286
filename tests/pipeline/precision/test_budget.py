"""Accuracy bought with multiplications, from the option to the int8 model."""

from __future__ import annotations

import numpy as np
import pytest

import npuconv
from builders import Net
from npuconv.errors import UsageError

X = ("N", 3, 16, 16)


def network(x=X) -> Net:
    """Layers on the device, alone and in a row, with and without padding."""
    net = Net(x=x).conv("x", (8, 3, 3, 3), pads=[1] * 4, name="first").op("Relu")
    net.conv(weight=(8, 1, 3, 3), group=8, pads=[1] * 4, name="depthwise").op("Sigmoid")
    return net.conv(weight=(4, 8, 1, 1), name="last")


def samples(count: int = 24) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {"x": rng.normal(0, 1, (count, 3, 16, 16)).astype(np.float32)}


def convert(**options):
    return npuconv.convert(network().model(), calibration=samples(), **options)


@pytest.fixture(scope="module")
def plain():
    return convert()


def test_nothing_is_bought_unasked(plain):
    """By default the device does what the model says, and no more."""
    assert plain.report.quantization.budget is None


def test_twice_the_multiplications(plain):
    """Half the steps, more or less: 6 dB at best, 3 at least, and every copy int8."""
    found = convert(max_extra_macs=100)
    budget = found.report.quantization.budget
    assert 0 < budget.extra_percent <= 100
    assert found.report.accuracy.sqnr_db > plain.report.accuracy.sqnr_db + 3
    assert budget.simulated_db > budget.before_db + 3
    assert abs(budget.simulated_db - found.report.accuracy.sqnr_db) < 1.5
    convs = [n for n in found.model.graph.node if n.op_type == "QLinearConv"]
    assert len(convs) == 3 + sum(one.times - 1 for one in budget.repeated)


def test_layers_stay_in_their_order():
    """Those that run several times stand where they did."""
    report = convert(max_extra_macs=30).report.quantization
    assert report.budget.repeated
    assert [layer.name for layer in report.layers] == ["first", "depthwise", "last"]


def test_the_report_counts_what_was_bought():
    """MACs of the device are those of the model that is written."""
    found = convert(max_extra_macs=30).report
    budget, device = found.quantization.budget, found.summary.placement["device"]
    before = 16 * 16 * (8 * 27 + 8 * 9 + 4 * 8)
    assert device.macs == before + budget.extra_macs
    assert budget.extra_percent == pytest.approx(100 * budget.extra_macs / before, abs=1e-3)
    parts = (*budget.repeated, *budget.channels)
    assert budget.extra_macs == sum(one.extra_macs for one in parts)
    assert {one.node for one in budget.repeated} <= {"first", "depthwise", "last"}


def test_only_as_much_as_the_goal_takes(plain):
    """A goal that is reached already costs nothing; a little more costs a little."""
    base = plain.report.accuracy.sqnr_db
    assert convert(min_sqnr=base - 3).report.quantization.budget.repeated == ()
    found = convert(min_sqnr=base + 1).report
    assert found.accuracy.sqnr_db >= base + 1
    assert 0 < found.quantization.budget.extra_percent < 100


def test_a_goal_beyond_the_limit():
    """The error names both numbers, and the report says what was tried."""
    with pytest.raises(npuconv.UnsupportedModelError) as caught:
        convert(min_sqnr=90, max_extra_macs=10)
    budget = caught.value.report.quantization.budget
    assert budget.extra_percent <= 10
    assert budget.simulated_db < 90


def test_layers_are_compared_as_their_mean():
    """One row for each layer, whatever it takes; its noise is counted together."""
    found = convert(max_extra_macs=100).report
    rows = {row.name: row for row in found.quantization.layers}
    assert set(rows) == {"first", "depthwise", "last"}
    repeated = found.quantization.budget.repeated
    assert all(f"mean of {one.times} copies" in rows[one.node].note for one in repeated)
    # What the report says of a mean is that of its numbers, not of the integers below them.
    assert len(repeated) == 3
    assert all(row.sqnr_db > 35 for row in rows.values())
    assert sum(row.noise_share for row in rows.values()) == pytest.approx(1, abs=0.01)


def test_sizes_come_from_the_samples_where_the_model_has_none():
    """What a layer costs is known when the samples are."""
    proto = network(x=("N", 3, "H", "W")).model()
    found = npuconv.convert(proto, calibration=samples(), max_extra_macs=20).report
    budget = found.quantization.budget
    assert 0 < budget.extra_macs <= 0.2 * 16 * 16 * (8 * 27 + 8 * 9 + 4 * 8)


def test_the_same_bytes_twice():
    """Nothing in it is left to chance."""
    first, second = (convert(max_extra_macs=50) for _ in range(2))
    assert first.model.SerializeToString() == second.model.SerializeToString()
    assert first.report == second.report


def test_explicit_conversions_compute_the_same():
    """The other form of the same integers."""
    both = [convert(max_extra_macs=50, format=form).report.accuracy.sqnr_db
            for form in ("qoperator", "qdq")]  # fmt: skip
    assert both[0] == pytest.approx(both[1], abs=0.5)


def test_one_scale_for_all_weights(tmp_path):
    """Copies need weight scales of their own."""
    path = tmp_path / "chip.yaml"
    path.write_text(
        "schema: 1\nname: whole\noperators: {Conv: {limits: {}}}\n"
        "activations: {dtype: int8, zero_point: [0], granularity: tensor}\n"
        "weights: {dtype: int8, symmetric: true, granularity: tensor}\n"
        "unlisted_operators: host\n"
    )
    with pytest.raises(UsageError, match="one scale for all weights"):
        convert(target=str(path), max_extra_macs=10)


def test_what_stays_float_is_not_bought():
    """Nor what the device does not run."""
    found = convert(keep_float=("last",), max_extra_macs=100).report
    assert "last" not in {one.node for one in found.quantization.budget.repeated}
    assert found.quantization.budget.repeated
