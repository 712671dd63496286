"""Weights rounded with their data in view."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.quant.encoding import Encoding, scales_for
from npuconv.quant.layer import folded
from npuconv.quant.moments import Moments
from npuconv.quant.qparams import dequantize, quantize_weights
from npuconv.tuning.weights.rounding import solve


def case(
    seed: int = 0, *, group: int = 1, mean: float = 2.0, alike: float = 1.0, small: bool = False
) -> tuple[np.ndarray, np.ndarray, Encoding, Moments, np.ndarray]:
    """Weight, bias, input encoding, moments, and more windows to judge on."""
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
    moments = Moments(group, length)
    for _ in range(3):
        moments.add(windows(400))
    moments.add(windows(200), apart=True)
    seen = windows(2000)
    inputs = seen.reshape(channels * group, -1)
    ends = scales_for(inputs.min(axis=1), inputs.max(axis=1), np.zeros(len(inputs), bool))
    source = Encoding(*ends, ends[0].max(), 1)
    return weight, rng.normal(size=rows).astype(np.float32), source, moments, seen


def outputs(rows: np.ndarray, bias: np.ndarray, seen: np.ndarray, group: int) -> np.ndarray:
    made = rows.reshape(group, -1, seen.shape[1]).astype(np.float64) @ seen
    return made.reshape(len(bias), -1) + bias[:, None]


def errors(parts: tuple, group: int) -> tuple[float, float]:
    """Mean squares of nearest and of tuned weights, on windows that neither has seen."""
    weight, bias, source, moments, seen = parts
    exact = outputs(weight, bias, seen, group)
    axis = folded(np.ones_like(weight), source, group)
    steps, scales = quantize_weights(folded(weight, source, group))
    near = dequantize(steps, scales, axis=0) / axis
    rounded, _ = solve(weight, bias, source, moments)
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
    """It is only taken where it proves better on windows kept apart."""
    for seed in range(6):
        old, new = errors(case(seed, group=group, mean=mean, alike=0.2), group)
        assert new < 1.1 * old


def test_what_is_chosen_is_told():
    """In a word, and in the numbers of the layer: int8 steps, their scales, and a bias."""
    weight, bias, source, moments, _ = case(small=True)
    rounded, label = solve(weight, bias, source, moments)
    assert label.startswith("compensated")
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
    weight, _, source, moments, _ = case(small=True, mean=5.0)
    rounded, label = solve(weight, None, source, moments)
    if "bias corrected" in label:
        assert rounded.bias.any()
    else:
        assert not rounded.bias.any()


def test_nothing_to_judge_on():
    """Too few samples to keep some apart: the nearest integers."""
    weight, bias, source, moments, seen = case()
    few = Moments(1, moments.length)
    few.add(seen)
    assert solve(weight, bias, source, few) == (None, "nearest")


def test_weights_that_are_integers():
    """Rounding loses nothing, so nothing is better."""
    _, bias, _, moments, seen = case()
    weight = np.random.default_rng(0).integers(-127, 128, (8, 4, 3, 3)).astype(np.float32)
    weight[:, 0, 0, 0] = 127
    plain = Encoding.plain(float(np.abs(seen).max()) / 127)
    assert solve(weight, bias, plain, moments) == (None, "nearest")
