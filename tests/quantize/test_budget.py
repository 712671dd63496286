"""Layers that a budget repeats, for whole graphs."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache

import numpy as np
import onnx
import pytest

import npuconv
from npuconv.partition.costs import macs
from npuconv.quantize import budget, sensitivity, settings
from npuconv.quantize.budget import BudgetResult, layer_macs, spend_budget
from npuconv.quantize.fake_quant import FakeQuantComparison, SquaredErrors, quant_points
from support.asserts import context, read
from support.builders import Net
from support.outlier_nets import CHANNELS, loud, pictures
from support.plans import Quantized, planned, quantized


@cache
def once(between: str) -> tuple[onnx.ModelProto, Quantized]:
    """A graph that nobody changes, and its model."""
    proto = loud(between, (1, 3, 12, 12))
    return proto, quantized(proto, [{"x": one[None]} for one in pictures(8)])


def of_loud(between: str = "Relu", **options: object) -> Quantized:
    """One that may be changed."""
    proto, own = once(between)
    return replace(own, graph=planned(read(proto), context(**options)))


def test_multiplications_of_open_sizes_are_those_of_the_samples():
    """Samples give the sizes of maps that the model leaves open."""
    wanted = {"first": 144 * CHANNELS * 27, "mixed": 144 * CHANNELS * 36}
    for x in ((1, 3, 12, 12), ("N", 3, "H", "W")):
        graph = planned(read(loud("Relu", x)))
        assert layer_macs(graph, graph.proto, [{"x": pictures(1)}]) == wanted


# Repeats


def spend(own: Quantized) -> BudgetResult:
    return spend_budget(own.graph, own.state, own.hessians, own.feeds, own.feeds)


def device_macs(spent: BudgetResult) -> int:
    """Return the MACs of the graph as it is now."""
    return sum(macs(conv) for conv in spent.oversampled.graph.plan.convolutions)


@pytest.mark.parametrize("between", ["Relu", "Sigmoid", "HardSwish"])
def test_multiplications_buy_accuracy(between: str):
    """Copies of a layer bring more than 1 dB; the simulation is what the changed graph does."""
    own = of_loud(between, max_extra_macs=100)
    proto = own.graph.proto
    found = spend(own)
    assert set(found.repeats) == set(found.layer_macs)
    assert found.macs == 144 * CHANNELS * (27 + 36)
    assert device_macs(found) == found.macs + found.extra_macs
    assert 0 < found.extra_macs <= found.macs
    assert found.after.sqnr_db > found.before.sqnr_db + 1
    made = found.oversampled
    points = quant_points(made.graph, made.state)
    assert FakeQuantComparison(proto, own.feeds).measure(points, made.graph.proto) == found.after


def test_steps_are_counted():
    """A step for each probe, and one for each part of the budget."""
    own = of_loud("HardSwish", max_extra_macs=100)
    steps: list[tuple[int, int]] = []
    spend_budget(
        own.graph, own.state, own.hessians, own.feeds, own.feeds,
        lambda done, total: steps.append((done, total)),
    )  # fmt: skip
    parts = (1 + settings.BUDGET_CHECKS) * settings.BUDGET_PROBES
    assert steps[: settings.BUDGET_PROBES] == [
        (n, parts) for n in range(1, settings.BUDGET_PROBES + 1)
    ]
    assert len(steps) == settings.BUDGET_PROBES + settings.BUDGET_CHECKS
    assert steps[-1] == (parts, parts)


def test_nothing_is_bought_for_nothing():
    """The graph stays the very one that it was."""
    own = of_loud("Relu", max_extra_macs=0)
    found = spend(own)
    assert not found.repeats
    assert found.oversampled.graph is own.graph
    assert found.oversampled.state is own.state
    assert (found.extra_macs, found.after) == (0, found.before)


def test_a_model_without_noise_buys_nothing():
    """Values that are whole steps make no noise."""
    proto = loud("Relu", (1, 3, 12, 12))
    for tensor in proto.graph.initializer:
        tensor.raw_data = np.zeros(tuple(tensor.dims), np.float32).tobytes()
    own = quantized(proto, [{"x": one[None]} for one in pictures(8)], max_extra_macs=50)
    assert not spend(own).repeats


def test_a_goal_costs_what_it_takes():
    """None where it is reached, a part of the limit where it is near, all where it is far."""
    base = spend(of_loud("HardSwish", max_extra_macs=0)).before.sqnr_db
    near, mid, far = (spend(of_loud("HardSwish", min_sqnr=base + db)) for db in (-1, 1, 60))
    assert not near.repeats
    assert mid.after.sqnr_db >= base + 1
    assert 0 < mid.extra_macs < far.extra_macs <= far.macs


def test_the_best_part_of_the_budget_is_spent(monkeypatch):
    """More is simulated until the goal is reached; what is worse again is dropped."""
    noise = (1.0, 0.9, 0.5, 0.7, *[0.8] * settings.BUDGET_CHECKS)
    for goal, parts in ((11, 2), (13.5, 2), (10.4, 1)):
        found = iter([SquaredErrors((power,), (10.0,)) for power in noise])
        monkeypatch.setattr(FakeQuantComparison, "measure", lambda *_, found=found: next(found))
        counts = iter([{"mixed": number} for number in range(2, 12)])
        monkeypatch.setattr(budget, "allocate", lambda *_, counts=counts: next(counts))
        spent = spend(of_loud("HardSwish", min_sqnr=goal))
        assert spent.repeats == {"mixed": 1 + parts}
        assert spent.after.noise == (noise[parts],)


def test_noise_is_looked_at_before_it_saturates():
    """Unless a goal says what the outputs themselves are to have."""
    net = Net(x=(1, 3, 12, 12)).conv("x", (8, 3, 3, 3), name="first").op("Relu")
    proto = net.conv("", (4, 8, 1, 1), name="last").op("Sigmoid").model()
    shown, raw = spend(quantized(proto, min_sqnr=10)), spend(quantized(proto, max_extra_macs=20))
    assert (shown.is_before_saturation, raw.is_before_saturation) == (False, True)
    assert sum(shown.before.noise) < sum(raw.before.noise) / 16


def test_what_does_harm_is_not_bought(monkeypatch):
    """A simulation has the last word: in most samples, and in all of them together."""
    kept = []
    for noise in ((2.0, 2.0, 2.0), (0.1, 0.1, 10.0), (0.9, 1.4, 0.9), (0.9, 0.9, 0.9)):
        before, after = (SquaredErrors(n, (9.0,) * 3) for n in ((1.0, 1.0, 1.0), noise))
        found = itertools.chain([before], itertools.repeat(after))
        monkeypatch.setattr(FakeQuantComparison, "measure", lambda *_, found=found: next(found))
        kept.append(bool(spend(of_loud("Relu", max_extra_macs=60)).repeats))
    assert kept == [False, False, False, True]


def test_a_simulation_leaves_the_model_as_it_is(monkeypatch):
    """A simulation works on a copy."""
    own = of_loud("Relu", max_extra_macs=60)
    before = own.graph.proto.SerializeToString(deterministic=True)
    monkeypatch.setattr(SquaredErrors, "ratio", lambda *_: 2.0)
    found = spend(own)
    assert not found.repeats
    assert own.graph.proto.SerializeToString(deterministic=True) == before


def test_where_sensitivity_is_not_known_nothing_is_bought(monkeypatch):
    """The error before is told all the same."""
    monkeypatch.setattr(sensitivity, "measure", lambda *_: None)
    own = of_loud("Relu", max_extra_macs=50)
    found = spend(own)
    assert not found.repeats
    assert found.oversampled.graph is own.graph
    assert found.before.sqnr_db > 20


def test_a_layer_that_stays_float_in_pieces():
    """The graph that a budget is tried on leaves the same nodes on the host."""
    net = Net(x=("N", 4, 12, 9)).conv("x", (8, 2, 3, 3), group=2, name="kept")
    net.op("GlobalAveragePool").op("Flatten")
    proto = net.op("Gemm", net.last, net.random(8, 5), net.random(5)).model()
    data = {"x": np.random.default_rng(0).normal(size=(8, 4, 12, 9)).astype(np.float32)}
    found = npuconv.convert(
        proto, "mediatek-mdla2", calibration=data, keep_float=("kept",), max_extra_macs=50
    )
    assert {n.placement for n in found.report.nodes if n.name == "kept"} == {"host"}
