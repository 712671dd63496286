"""Tensors of the device that cross to be padded: where the outputs gain by it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from onnx import numpy_helper

import npuconv
from npuconv.legalize.legal import LegalModel
from npuconv.quantize import sensitivity, settings
from npuconv.quantize.fake_quant import FakeQuantComparison, quant_points, with_logit_outputs
from npuconv.quantize.host_prep import pad_between_layers
from npuconv.quantize.ranges import choose_encodings
from npuconv.quantize.state import QuantState
from support.asserts import context, read, same_numbers
from support.builders import Net
from support.plans import Feeds, calibrated, planned

PADS = {"pads": [1] * 4}
EDGE = np.array([[0, 0, 0], [1, 0, -0.7], [0, 0, 0]])
BLUR = np.ones((3, 3)) / 9


def hills(count: int = 16) -> np.ndarray:
    """Values above 0, large in the middle, and noise on them: float32 [count, 3, 32, 32]."""
    rng, hill = np.random.default_rng(0), np.sin(np.linspace(0, np.pi, 32))
    large = np.outer(hill, hill) * rng.uniform(0.5, 1, (count, 3, 1, 1))
    return np.float32(large + 0.5 * rng.uniform(0, 1, (count, 3, 32, 32)))


def net(kernel: np.ndarray = EDGE, louder: float = 0.0) -> Net:
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


def crossed(
    built: Net, feeds: Feeds = (), **options: object
) -> tuple[LegalModel, QuantState, QuantState]:
    """The graph after the step, its state, and that before."""
    graph = planned(read(built.model()), context(**{"pad_on_host": "auto"} | options))
    feeds = list(feeds) or [{"x": one[None]} for one in hills()[:8]]
    seen = calibrated(graph, feeds)
    before = choose_encodings(graph, seen)
    ends, points = with_logit_outputs(graph.proto), quant_points(graph, before)
    found = sensitivity.measure(ends, points, feeds, 4)
    graph, after, _ = pad_between_layers(graph, seen, before, lambda: found)
    return graph, after, before


def padded(built: Net, **options: object) -> list[str]:
    """The layers that need not pad any more."""
    return [record.node for record in crossed(built, **options)[0].log.rewrites]


def test_a_tensor_crosses_where_the_outputs_gain():
    """The graph is planned anew, and what reads the padded tensor has half of the step."""
    graph, after, before = crossed(net())
    (second,) = (conv for conv in graph.plan.convolutions if conv.name == "second")
    assert [record.node for record in graph.log.rewrites] == ["second"]
    assert second.attrs["pads"] == [0] * 4
    own, old = after.encodings[second.inputs[0].name], before.encodings["made"]
    assert (own.zeros == -128).all()
    assert not old.zeros.any()
    np.testing.assert_allclose(2 * own.scales, old.scales, rtol=0.07)
    assert set(after.methods) >= {group.name for group in graph.plan.groups}
    same_numbers(net().model(), graph.model)


def test_not_where_noise_of_others_is_all_there_is():
    """Two bytes for each value, and nobody would see it."""
    assert padded(net(louder=9.0)) == []
    assert padded(net(louder=9.0), pad_on_host="all") == ["second"]


def test_not_where_nobody_would_miss_the_steps():
    """A blur takes rounding away."""
    assert padded(net(BLUR)) == []


def test_not_where_outputs_are_good_enough():
    """Its steps make most of the error, and there is little of that."""
    copy = np.zeros((3, 3))
    copy[1, 1] = 1
    graph, _, state = crossed(net(copy))
    assert not graph.log.rewrites
    feeds = [{"x": one[None]} for one in hills()[:8]]
    points = quant_points(graph, state)
    error = FakeQuantComparison(graph.proto, feeds)
    own = [point for point in points if point.tensor == "made"]
    assert error.measure(points).sqnr_db > settings.PADDING_SUFFICIENT_DB
    assert sum(error.measure(own).noise) > 0.3 * sum(error.measure(points).noise)


def test_not_where_all_that_cross_bring_too_little(monkeypatch):
    """Crossings cost time, so they must bring enough."""
    # More than half the steps could.
    monkeypatch.setattr(settings, "PADDING_OUTPUT_GAIN_DB", 7.0)
    assert padded(net()) == []


def test_only_what_matters_crosses():
    """The map with hardly any noise stays, the other crosses."""
    built = net()
    built.op("Conv", "x", built.constant(np.ones((4, 3, 1, 1))), name="quiet", to="q")
    built.op("Relu", "q", to="r")
    built.op("Conv", "r", built.constant(np.full((4, 4, 3, 3), 1e-4)), name="still", to="z", **PADS)
    assert padded(built.output("y", "z")) == ["second"]


@pytest.mark.parametrize(
    ("asked", "options", "wanted"),
    [
        ("host", {}, []),
        ("auto", {}, ["second"]),
        ("inputs", {}, []),
        ("never", {"max_extra_macs": 50}, []),
        ("auto", {"without": ("host-padding",)}, []),
    ],
)
def test_as_the_user_has_it(asked, options, wanted):
    """Inputs, or all that the host makes, or also what the device makes for itself."""
    assert padded(net(), pad_on_host=asked, **options) == wanted


def test_all_tensors_cross_for_any_gain():
    """A user who asks for all need not be asked whether it is worth it."""
    assert padded(net(BLUR), pad_on_host="all") == ["second"]


def test_multiplications_buy_no_crossing():
    """Bytes have a budget of their own."""
    for budget in ({"max_extra_macs": 50}, {"min_sqnr": 10}):
        assert padded(net(), pad_on_host="host", **budget) == []


def test_not_what_has_both_signs():
    """One integer for all channels stands for 0, and would be the middle one."""
    built = Net(x=(1, 3, 32, 32)).conv("x", (4, 3, 1, 1), name="first")
    built.conv("", (4, 4, 3, 3), name="second", **PADS)
    assert padded(built, pad_on_host="all") == []


def test_not_where_the_pads_are_much_of_it():
    """A map of 2 by 2 would become four times as large."""
    built = Net(x=(1, 3, 2, 2)).conv("x", (4, 3, 1, 1), name="first").op("Relu")
    built.conv("", (4, 4, 3, 3), name="second", **PADS)
    feeds = [{"x": one[None, :, :2, :2]} for one in hills()]
    assert padded(built, feeds=feeds, pad_on_host="all") == []


def test_what_others_read_without_pads():
    """Other readers keep the unpadded tensor; both are stored alike."""
    built = net().conv("made", (4, 4, 1, 1), name="third", to="z").output("y", "z")
    graph, after, before = crossed(built, pad_on_host="all")
    assert [record.node for record in graph.log.rewrites] == ["second"]
    sources = {conv.name: conv.inputs[0].name for conv in graph.plan.convolutions}
    assert sources["third"] == "made" != sources["second"]
    assert set(after.encodings) == {*before.encodings, sources["second"]}
    inner, own = after.encodings["made"], after.encodings[sources["second"]]
    np.testing.assert_array_equal(inner.scales, own.scales)
    np.testing.assert_array_equal(inner.zeros, own.zeros)


def test_where_sensitivity_is_not_known_nothing_crosses(monkeypatch):
    """Unless it is asked for."""
    monkeypatch.setattr(sensitivity, "measure", lambda *_: None)
    assert padded(net()) == []
    assert padded(net(), pad_on_host="all") == ["second"]


def convert(built: Net, pad_on_host: str = "auto") -> npuconv.Conversion:
    options = {"pad_on_host": pad_on_host, "ignore": ["OPS"]}
    return npuconv.convert(built.model(), calibration={"x": hills(32)}, **options)


def test_from_the_samples_to_the_integers():
    """The lowest integer stands for 0, what crosses is counted, and accuracy is what it is for."""
    free, fixed = (convert(net(), way) for way in ("auto", "host"))
    assert free.report.accuracy.sqnr_db > fixed.report.accuracy.sqnr_db + 2
    assert free.report.device.to_device.bytes == fixed.report.device.to_device.bytes + 4 * 34 * 34
    (pad,) = [n for n in free.model.graph.node if n.op_type == "Pad"]
    (fill,) = [t for t in free.model.graph.initializer if t.name == pad.input[2]]
    assert numpy_helper.to_array(fill) == -128
    rows = {row.name for row in free.report.quantization.tensors}
    assert {"made", pad.output[0].removesuffix("/int8")} & rows
    first, second = (convert(net()).model.SerializeToString() for _ in range(2))
    assert first == second == free.model.SerializeToString()


def test_a_state_is_not_changed_in_place():
    """A state is a value."""
    graph, after, before = crossed(net())
    assert after is not before
    assert set(after.encodings) > set(before.encodings)
    assert set(after.roundings) <= {"second"}
    same = {"encodings": before.encodings, "methods": before.methods}
    assert replace(after, **same, weights=before.weights, roundings=before.roundings) == before
    assert graph.plan.convolutions


def test_what_is_left_of_the_error():
    """Half the step is a quarter, as a measurement of the padded graph says."""
    graph = planned(read(net().model()), context(pad_on_host="auto"))
    feeds = [{"x": one[None]} for one in hills()[:8]]
    seen = calibrated(graph, feeds)
    state = choose_encodings(graph, seen)

    def measured(graph: LegalModel, state: QuantState) -> sensitivity.Sensitivity:
        points = quant_points(graph, state)
        return sensitivity.measure(with_logit_outputs(graph.proto), points, feeds, 64)

    found = measured(graph, state)
    graph, state, restepped = pad_between_layers(graph, seen, state, lambda: found)
    left = restepped()
    assert left.activations["made"] == pytest.approx(found.activations["made"] / 4, rel=0.15)
    again = measured(graph, state)
    assert left.activations["made"] == pytest.approx(again.activations["made"], rel=0.35)
    assert left.activations["y"] == found.activations["y"]
