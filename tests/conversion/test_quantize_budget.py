"""Layers and channels that are bought with multiplications, within a budget."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
import onnx
import pytest

import npuconv
from npuconv.data.samples import held_out_places, spread
from npuconv.errors import UsageError
from npuconv.evaluate import matching
from npuconv.schemas.verify import VerifyReport
from support.builders import Net
from support.outlier_nets import CHANNELS, LOUD, loud, pictures

# Layers bought with multiplications

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
    """Half the steps, more or less: 6 dB at best, 3 at least, and every copy int8."""
    plain, found = bought(), bought(100)
    budget = found.report.quantization.budget
    assert 0 < budget.extra_percent <= 100
    assert found.report.accuracy.sqnr_db > plain.report.accuracy.sqnr_db + 3
    assert budget.simulated_db > budget.before_db + 3
    assert abs(budget.simulated_db - found.report.accuracy.sqnr_db) < 1.5
    convs = [n for n in found.model.graph.node if n.op_type == "QLinearConv"]
    assert len(convs) == 3 + sum(one.times - 1 for one in budget.repeated)


def test_the_report_counts_what_was_bought():
    """MACs of the device are those of the model that is written."""
    report = bought(100).report
    budget, device = report.quantization.budget, report.summary.placement["device"]
    assert device.macs == MACS + budget.extra_macs
    assert budget.extra_percent == pytest.approx(100 * budget.extra_macs / MACS, abs=1e-3)
    parts = (*budget.repeated, *budget.channels)
    assert budget.extra_macs == sum(one.extra_macs for one in parts)


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


def test_one_scale_for_all_weights(tmp_path: Path):
    """Copies need weight scales of their own."""
    path = tmp_path / "chip.yaml"
    path.write_text(
        "schema: 1\nname: whole\noperators: {Conv: {limits: {}}}\n"
        "activations: {dtype: int8, zero_point: [0], granularity: tensor}\n"
        "weights: {dtype: int8, symmetric: true, granularity: tensor}\n"
        "unlisted_operators: host\n"
    )
    with pytest.raises(UsageError, match="one scale for all weights"):
        bought(10, target=str(path))


# Channels bought with multiplications


@cache
def of_loud(between: str, percent: float = 15, **options: object) -> npuconv.Conversion:
    asked = {"max_extra_macs": percent} if percent else {}
    return npuconv.convert(loud(between), calibration={"x": pictures()}, **asked, **options)


@pytest.fixture(scope="module", params=["Relu", "Sigmoid", "HardSwish"])
def pair(request) -> tuple[npuconv.Conversion, npuconv.Conversion]:
    """Convert with no budget, and with one that is too small for a layer."""
    return of_loud(request.param, 0), of_loud(request.param)


def test_less_noise_for_few_multiplications(pair):
    """A small budget lowers the noise on the device and behind the host."""
    plain, found = pair
    budget = found.report.quantization.budget
    assert budget.channels
    assert not budget.repeated
    assert 0 < budget.extra_percent <= 15
    assert found.report.accuracy.sqnr_db > plain.report.accuracy.sqnr_db + 1
    assert abs(budget.simulated_db - found.report.accuracy.sqnr_db) < 1.5
    said = {r.node: r.after for r in found.report.rewrites if r.pass_name == "repeat-channels"}
    assert str(LOUD) in said["first"].partition("copies of ")[2].split(", ")
    rows = [r for r in found.report.rewrites if r.pass_name != "write-opset"]  # a number alone
    assert all(r.max_abs_difference is not None for r in rows)


def test_multiplications_are_those_of_the_model(pair):
    """Shapes of the weights that are written say what the device does."""
    _, found = pair
    device = found.report.summary.placement["device"]
    weights = [t for t in found.model.graph.initializer if tuple(t.dims[2:]) == (3, 3)]
    assert device.macs == 144 * sum(int(np.prod(t.dims)) for t in weights)
    extra = found.report.quantization.budget.extra_macs
    assert device.macs == 144 * CHANNELS * (27 + 36) + extra


def test_layers_are_compared_with_what_they_were(pair):
    """Copies count as their mean, the row says how many there are, and so does the file."""
    plain, found = ({row.name: row for row in r.report.quantization.layers} for r in pair)
    assert list(found) == list(plain) == ["first", "mixed"]
    assert "duplicated, so that steps are finer" in found["first"].note
    assert found["first"].sqnr_db > plain["first"].sqnr_db - 0.5
    matched = {layer.name: layer for layer in matching.match(loud(), pair[1].model).layers}
    assert set(matched) == {"first", "mixed"}
    assert len(matched["first"].channels) > CHANNELS
    assert max(matched["first"].channels) < CHANNELS


def test_what_nobody_knows_is_asked_of_the_model_that_is_written(pair):
    """Limits that are not known: it has more channels than the one that came."""
    _, found = pair
    needed = {one.limit: one.values for one in found.report.unknown_limits}
    kernels = [t for t in found.model.graph.initializer if tuple(t.dims[2:]) == (3, 3)]
    widest = max(t.dims[1] for t in kernels)
    assert max(int(value) for value in needed["Conv.in_c"]) == widest
    said = [f for f in found.report.findings if f.code == "OPS005" and ".in_c" in f.message]
    assert [str(widest) in f.value for f in said] == [True]


def test_verify_agrees(tmp_path: Path):
    """Verify gives the figures of the conversion, outputs and layers, on the same samples."""
    onnx.save(loud("HardSwish"), tmp_path / "m.onnx")
    converted = of_loud("HardSwish")
    onnx.save(converted.model, tmp_path / "m.int8.onnx")
    accuracy, samples = converted.report.accuracy, pictures()

    def verify(places: Sequence[int]) -> VerifyReport:
        data = {"x": samples[list(places)]}
        return npuconv.verify(tmp_path / "m.onnx", tmp_path / "m.int8.onnx", data=data)

    held_out = held_out_places(len(samples), accuracy.samples)
    assert verify(held_out).total.sqnr_db == pytest.approx(accuracy.sqnr_db, abs=0.01)
    rows = {row.name: row.sqnr_db for row in converted.report.quantization.layers}
    (place,) = spread(len(held_out), 1)  # the sample on which a conversion compares layers
    verified = verify([held_out[place]])
    assert verified.layers
    for row in verified.layers:
        assert row.sqnr_db == pytest.approx(rows[row.name], abs=0.01)


def test_explicit_conversions_and_the_same_bytes():
    """The other form of the same integers; twice the same."""
    first, other = of_loud("HardSwish"), of_loud("HardSwish", format="qdq")
    assert first.report.accuracy.sqnr_db == pytest.approx(other.report.accuracy.sqnr_db, abs=0.5)
    of_loud.cache_clear()
    second = of_loud("HardSwish")
    assert first.model.SerializeToString() == second.model.SerializeToString()
    assert first.report == second.report


def test_int8_at_the_door():
    """Integer inputs and outputs keep one scale, and are not duplicated."""
    found = of_loud("Relu", 100, io="int8")
    shapes = [
        info.type.tensor_type.shape.dim[1].dim_value
        for info in (*found.model.graph.input, *found.model.graph.output)
    ]
    assert shapes == [3, 4]
    names = {one.tensor for one in found.report.quantization.budget.channels}
    assert names == {"made"}


def widest(found: npuconv.Conversion) -> int:
    return max(max(t.dims[:2]) for t in found.model.graph.initializer if len(t.dims) == 4)


def test_a_known_limit_is_kept(tmp_path: Path):
    """No layer gets more channels than the target takes."""
    lines = (resources.files("npuconv.targets") / "npu-int8.yaml").read_text().splitlines()
    for number, line in enumerate(lines):
        key, _, rest = line.strip().partition(":")
        if key in ("weight_n", "in_c"):
            lines[number] = line.replace(f"{key}:{rest}", f"{key}: {{max: {CHANNELS + 1}}}")
    path = tmp_path / "narrow.yaml"
    path.write_text("\n".join(lines))
    assert widest(of_loud("Relu")) > CHANNELS + 1
    assert widest(of_loud("Relu", target=str(path))) == CHANNELS + 1


def test_nobody_takes_a_mean_where_there_is_no_host(tmp_path: Path):
    """Channels between layers may be made again there, and nothing else be bought."""
    text = (resources.files("npuconv.targets") / "npu-int8.yaml").read_text()
    path = tmp_path / "alone.yaml"
    path.write_text(text.replace("operators: undocumented", "operators: error"))
    found = of_loud("Relu", 100, target=str(path), pad_on_host="never")
    budget, ops = found.report.quantization.budget, [n.op_type for n in found.model.graph.node]
    assert [one.tensor for one in budget.channels] == ["made"]
    assert not budget.repeated
    assert not {"Gather", "Sum", "Mul", "Add"} & set(ops)
