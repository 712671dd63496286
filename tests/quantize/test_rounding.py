"""Weights rounded with their data in view."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npuconv.arithmetic.encoding import Encoding, dequantize, quantize_weights, scales_for
from npuconv.arithmetic.layer import folded
from npuconv.legalize.legal import LegalModel
from npuconv.model.store import Store
from npuconv.quantize import settings
from npuconv.quantize.hessian import Hessian
from npuconv.quantize.ranges import choose_encodings
from npuconv.quantize.rounding import round_weights, solve
from npuconv.quantize.state import QuantState
from support.asserts import builtin, context, read
from support.builders import Net
from support.plans import calibrated, planned, prepare, random_feeds, windows, without


def case(
    seed: int = 0, *, group: int = 1, mean: float = 2.0, alike: float = 1.0, small: bool = False
) -> tuple[np.ndarray, np.ndarray, Encoding, Hessian, np.ndarray]:
    """Weight, bias, input encoding, Hessian, and more windows to judge on."""
    rng = np.random.default_rng(seed)
    rows, channels = (8, 4) if group == 1 else (4, 1)
    length = channels * 9
    mixing = rng.normal(size=(group, length, 3))

    def windows(count: int) -> np.ndarray:
        seen = mean + alike * mixing @ rng.normal(size=(group, 3, count))
        return (seen + 0.3 * rng.normal(size=(group, length, count))).astype(np.float32)

    weight = rng.normal(size=(rows, channels, 3, 3)).astype(np.float32)
    if small:  # one large weight in each row leaves few levels to the others
        weight.reshape(rows, -1)[:, 0] *= 60
    hessian = Hessian(group, length)
    for _ in range(3):
        hessian.add(windows(400))
    hessian.add(windows(200), held_out=True)
    seen = windows(2000)
    inputs = seen.reshape(channels * group, -1)
    ends = scales_for(inputs.min(axis=1), inputs.max(axis=1), np.zeros(len(inputs), bool))
    source = Encoding(*ends, ends[0].max(), 1)
    return weight, rng.normal(size=rows).astype(np.float32), source, hessian, seen


def outputs(rows: np.ndarray, bias: np.ndarray, seen: np.ndarray, group: int) -> np.ndarray:
    made = rows.reshape(group, -1, seen.shape[1]).astype(np.float64) @ seen
    return made.reshape(len(bias), -1) + bias[:, None]


def errors(parts: tuple, group: int) -> tuple[float, float]:
    """Mean squares of nearest and of tuned weights, on windows that neither has seen."""
    weight, bias, source, hessian, seen = parts
    exact = outputs(weight, bias, seen, group)
    axis = folded(np.ones_like(weight), source, group)
    steps, scales = quantize_weights(folded(weight, source, group))
    near = dequantize(steps, scales, axis=0) / axis
    rounded, _ = solve(weight, bias, source, hessian)
    tuned, own = near, bias
    if rounded is not None:
        tuned, own = rounded.weight * rounded.scales.reshape(-1, 1, 1, 1) / axis, rounded.bias
    old = float(np.square(outputs(near, bias, seen, group) - exact).mean())
    return old, float(np.square(outputs(tuned, own, seen, group) - exact).mean())


@pytest.mark.parametrize("group", [1, 4])
def test_far_better_where_weights_are_the_limit(group: int):
    """A few large weights and inputs that go along; dense and depthwise."""
    pairs = [errors(case(seed, group=group, small=True), group) for seed in range(5)]
    assert sum(new for _, new in pairs) < 0.4 * sum(old for old, _ in pairs)


@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("mean", [0.0, 5.0])
def test_never_much_worse(group: int, mean: float):
    """GPTQ-style rounding is only taken if it is better on windows held out."""
    for seed in range(6):
        old, new = errors(case(seed, group=group, mean=mean, alike=0.2), group)
        assert new < 1.1 * old


def test_what_is_chosen_is_reported():
    """The layer has the method, int8 steps, their scales, and a bias."""
    weight, bias, source, hessian, _ = case(small=True)
    rounded, label = solve(weight, bias, source, hessian)
    assert label.startswith("GPTQ")
    assert rounded.weight.shape == weight.shape
    assert (rounded.weight.dtype, rounded.scales.dtype) == (np.int8, np.float32)
    assert rounded.weight.min() >= -127
    assert rounded.scales.shape == rounded.bias.shape == (8,)
    values = folded(weight, source, 1)
    made = rounded.weight * rounded.scales.reshape(-1, 1, 1, 1)
    size = rounded.scales.reshape(-1, 1, 1, 1)
    assert np.mean(np.abs(made - values) <= 2 * size) > 0.9


def test_a_layer_without_a_bias_may_get_one():
    """The mean of what rounding loses."""
    labels = {}
    for seed in range(6):
        weight, _, source, hessian, _ = case(seed, small=True, mean=5.0)
        rounded, label = solve(weight, None, source, hessian)
        assert rounded.bias.any() == ("bias corrected" in label)
        labels[label] = None
    assert any("bias corrected" in label for label in labels)


@pytest.mark.parametrize(
    ("without", "labels"),
    [
        ((), {"GPTQ", "GPTQ, bias corrected", "nearest, bias corrected"}),
        (("bias-correction",), {"GPTQ"}),
        (("gptq-rounding",), {"nearest", "nearest, bias corrected"}),
        (("gptq-rounding", "bias-correction"), {"nearest"}),
    ],
)
def test_steps_that_are_left_out(without: tuple[str, ...], labels: set[str]):
    """Neither integers other than the nearest, nor a bias other than the layer's own."""
    for seed in range(4):
        weight, bias, source, hessian, _ = case(seed, small=True, mean=5.0)
        found, label = solve(weight, bias, source, hessian, without=without)
        assert label in labels
        assert (found is None) == (label == "nearest")
        if "bias-correction" in without and found is not None:
            np.testing.assert_array_equal(found.bias, bias)


def test_nothing_to_judge_on():
    """Too few samples to hold some out: the nearest integers."""
    weight, bias, source, hessian, seen = case()
    few = Hessian(1, hessian.length)
    few.add(seen)
    assert solve(weight, bias, source, few) == (None, "nearest")


def test_weights_that_are_integers():
    """Rounding loses nothing, so nothing is better."""
    _, bias, _, hessian, seen = case()
    weight = np.random.default_rng(0).integers(-127, 128, (8, 4, 3, 3)).astype(np.float32)
    weight[:, 0, 0, 0] = 127
    plain = Encoding.plain(float(np.abs(seen).max()) / 127)
    assert solve(weight, bias, plain, hessian) == (None, "nearest")


# All layers of a model


def layers() -> Net:
    """Two layers, of which the second has one group for each channel."""
    net = Net(x=(1, 3, 12, 12)).conv("x", (24, 3, 3, 3), name="dense").op("Relu")
    return net.conv("", (24, 1, 3, 3), group=24, name="deep")


def encoded(net: Net) -> tuple[LegalModel, dict[str, Hessian], QuantState]:
    """A graph, its windows, and a state that holds encodings alone."""
    model, ctx = read(net.model()), context()
    graph = prepare(model, ctx)
    return graph, windows(graph, random_feeds(model, 8)), QuantState(ctx.emission.encodings)


def test_every_layer_with_windows_is_rounded():
    """Other parts of the state are not touched."""
    graph, hessians, state = encoded(layers())
    found = round_weights(graph, hessians, state)
    assert set(found.roundings) == {"dense", "deep"}
    assert found.roundings["deep"].startswith("GPTQ")
    assert set(found.weights) == {n for n, word in found.roundings.items() if word != "nearest"}
    assert found.encodings is state.encodings
    del hessians["deep"]
    assert set(round_weights(graph, hessians, state).roundings) == {"dense"}


def test_one_scale_for_all_weights_of_a_layer():
    """One scale per layer is rounded to nearest, as steps of its own are what helps."""
    graph, hessians, state = encoded(layers())
    weights = builtin().weights.model_copy(update={"granularity": "tensor"})
    coarse = replace(
        graph,
        device=replace(graph.device, target=builtin().model_copy(update={"weights": weights})),
    )
    found = round_weights(coarse, hessians, state)
    assert (found.weights, found.roundings) == ({}, {})


def test_some_rows_of_a_large_layer_at_once(monkeypatch):
    """A model whose weights lie in files is rounded part by part, to the same integers."""
    monkeypatch.setattr(settings, "ROUNDING_ERROR_LEFT", 1e9)  # the last tried
    graph, hessians, state = encoded(layers())
    whole = round_weights(without(graph, "bias-correction"), hessians, state)
    monkeypatch.setattr(settings, "ROUNDING_WEIGHTS_AT_ONCE", 5 * 27)
    graph.model.store = Store()
    parts = round_weights(without(graph, "bias-correction"), hessians, state)
    assert set(parts.weights) == set(whole.weights) == {"dense", "deep"}
    for name, one in whole.weights.items():
        np.testing.assert_array_equal(parts.weights[name].weight, one.weight)
        np.testing.assert_array_equal(parts.weights[name].scales, one.scales)


def test_only_some_layers():
    """The others keep what they have."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), name="a").conv("", (2, 4, 3, 3), name="b")
    model = read(net.model())
    graph = planned(model)
    seen = calibrated(graph, random_feeds(model, 8))
    state = choose_encodings(graph, seen)
    one = round_weights(graph, seen.hessians, state, only={"b"})
    assert set(one.roundings) == {"b"}
    both = round_weights(graph, seen.hessians, one, only={"a"})
    assert set(both.roundings) == {"a", "b"}
    assert both.weights.get("b") is one.weights.get("b")
    whole = round_weights(graph, seen.hessians, state)
    assert whole.roundings == both.roundings
