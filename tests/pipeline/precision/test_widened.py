"""Channels that are made several times, from what is asked for to the integers."""

from __future__ import annotations

import json
from importlib import resources

import numpy as np
import onnx
import pytest

import npuconv
from loud_nets import CHANNELS, LOUD, loud, pictures
from npuconv.pipeline.accuracy import matching

BETWEEN = ("Relu", "Sigmoid", "HardSwish")


def convert(proto: onnx.ModelProto, percent: float = 15, **options) -> npuconv.Conversion:
    asked = {"max_extra_macs": percent} if percent else {}
    return npuconv.convert(proto, calibration={"x": pictures()}, **asked, **options)


@pytest.fixture(scope="module", params=BETWEEN)
def pair(request) -> tuple[npuconv.Conversion, npuconv.Conversion]:
    """Without a budget, and with one that is too small for a layer."""
    proto = loud(request.param)
    return convert(proto, percent=0), convert(proto)


def test_less_noise_for_few_multiplications(pair):
    """On the device and behind the host."""
    plain, bought = pair
    budget = bought.report.quantization.budget
    assert budget.channels
    assert not budget.repeated
    assert 0 < budget.extra_percent <= 15
    assert bought.report.accuracy.sqnr_db > plain.report.accuracy.sqnr_db + 2
    assert abs(budget.simulated_db - bought.report.accuracy.sqnr_db) < 1.5


def test_the_loud_channel_is_among_them(pair):
    """What the first layer makes has one; behind a Sigmoid of the host another may be louder."""
    _, bought = pair
    said = {r.node: r.after for r in bought.report.rewrites if r.pass_name == "repeat-channels"}
    assert f"copies of {LOUD}" in said["first"]
    assert all(r.max_abs_difference is not None for r in bought.report.rewrites)


def test_multiplications_are_those_of_the_model(pair):
    """Shapes of the weights that are written say what the device does."""
    _, bought = pair
    device = bought.report.summary.placement["device"]
    weights = [t for t in bought.model.graph.initializer if tuple(t.dims[2:]) == (3, 3)]
    assert device.macs == 144 * sum(int(np.prod(t.dims)) for t in weights)
    extra = bought.report.quantization.budget.extra_macs
    assert device.macs == 144 * (CHANNELS * 27 + 4 * CHANNELS * 9) + extra


def test_layers_are_compared_with_what_they_were(pair):
    """Copies count as their mean, and the row says how many there are."""
    plain, bought = ({row.name: row for row in r.report.quantization.layers} for r in pair)
    assert list(bought) == list(plain) == ["first", "mixed"]
    assert bought["first"].note == "3 channels are made again so that they are finer"
    assert bought["first"].sqnr_db > plain["first"].sqnr_db - 0.5


def test_the_file_says_which_is_which(pair):
    """``verify`` finds the same."""
    _, bought = pair
    found = {layer.name: layer for layer in matching.match(loud(), bought.model).layers}
    assert set(found) == {"first", "mixed"}
    assert all(not layer.channels or max(layer.channels) < CHANNELS for layer in found.values())


@pytest.mark.parametrize("between", BETWEEN)
def test_verify_agrees(between, tmp_path):
    """With the report of the conversion, on the same samples."""
    proto = loud(between)
    onnx.save(proto, tmp_path / "m.onnx")
    bought = convert(proto)
    onnx.save(bought.model, tmp_path / "m.int8.onnx")
    found = npuconv.verify(
        tmp_path / "m.onnx", tmp_path / "m.int8.onnx", data={"x": pictures(40)[32:]}
    )
    assert found.total.sqnr_db == pytest.approx(bought.report.accuracy.sqnr_db, abs=2)
    rows = {row.name: row.sqnr_db for row in found.layers}
    assert rows["first"] == pytest.approx(
        next(r.sqnr_db for r in bought.report.quantization.layers if r.name == "first"), abs=1
    )


def test_explicit_conversions_compute_the_same():
    """The other form of the same integers."""
    both = [convert(loud("HardSwish"), format=form).report.accuracy.sqnr_db
            for form in ("qoperator", "qdq")]  # fmt: skip
    assert both[0] == pytest.approx(both[1], abs=0.5)


def test_the_same_bytes_twice():
    """Nothing in it is left to chance."""
    first, second = (convert(loud("HardSwish")) for _ in range(2))
    assert first.model.SerializeToString() == second.model.SerializeToString()
    assert first.report == second.report


def test_int8_at_the_door():
    """What goes in and out as integers keeps one scale, and is not made again."""
    found = convert(loud("Relu"), percent=100, io="int8")
    shapes = [
        tuple(d.dim_value for d in info.type.tensor_type.shape.dim)[1]
        for info in (*found.model.graph.input, *found.model.graph.output)
    ]
    assert shapes == [3, 4]
    names = {one.tensor for one in found.report.quantization.budget.channels}
    assert not names & {"x", found.model.graph.output[0].name}


def test_layers_that_have_copies_may_run_twice():
    """Both are bought where there is enough; the more, the better."""
    few, many = (convert(loud("HardSwish"), percent) for percent in (15, 100))
    assert many.report.quantization.budget.repeated
    assert many.report.accuracy.sqnr_db > few.report.accuracy.sqnr_db + 1


def test_what_nobody_knows_is_asked_of_the_model_that_is_written(pair):
    """Limits that are not known: it has more channels than the one that came."""
    plain, bought = pair
    needed = [
        {one.limit: one.values for one in each.report.unknown_limits} for each in (plain, bought)
    ]
    channels = [int(value) for value in needed[1]["Conv.in_c"]]
    assert max(channels) >= CHANNELS
    kernels = [t for t in bought.model.graph.initializer if tuple(t.dims[2:]) == (3, 3)]
    widest = max(t.dims[1] for t in kernels)
    assert max(channels) == widest
    said = [f for f in bought.report.findings if f.code == "OPS005" and ".in_c" in f.message]
    assert len(said) == 1
    assert str(widest) in said[0].value


def test_a_known_limit_is_kept(tmp_path):
    """No layer gets more channels than the target takes."""
    text = (resources.files("npuconv.targets") / "npu-int8.yaml").read_text()
    path = tmp_path / "narrow.yaml"
    path.write_text(_narrow(json.loads(json.dumps(text))))
    for between in BETWEEN:
        free, bound = (convert(loud(between), **options) for options in ({}, {"target": str(path)}))
        assert _widest(free) > CHANNELS + 1
        assert _widest(bound) == CHANNELS + 1


def _widest(found: npuconv.Conversion) -> int:
    return max(max(t.dims[:2]) for t in found.model.graph.initializer if len(t.dims) == 4)


def _narrow(text: str) -> str:
    """The built-in target, with a limit on the channels."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if line.strip().startswith(("weight_n:", "in_c:")):
            indent = line[: len(line) - len(line.lstrip())]
            key = line.strip().split(":")[0]
            lines[number] = f"{indent}{key}: {{max: {CHANNELS + 1}}}"
    return "\n".join(lines)


def test_nobody_takes_a_mean_where_there_is_no_host(tmp_path):
    """Channels between layers may be made again there, and nothing else be bought."""
    text = (resources.files("npuconv.targets") / "npu-int8.yaml").read_text()
    path = tmp_path / "alone.yaml"
    path.write_text(text.replace("operators: undocumented", "operators: error"))
    found = convert(loud("Relu"), percent=100, target=str(path), pad_on_host="never")
    budget, ops = found.report.quantization.budget, [n.op_type for n in found.model.graph.node]
    assert [one.tensor for one in budget.channels] == ["made"]
    assert not budget.repeated
    assert not {"Gather", "Sum", "Mul", "Add"} & set(ops)
