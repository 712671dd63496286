"""The choice among scales and zero points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv.quant.encoding import HIGHEST, Encoding, scales_for
from npuconv.tuning.scales.demands import Demand
from npuconv.tuning.scales.readers import Reader
from npuconv.tuning.scales.search import choose, limits

METHODS = ("auto", "minmax", "percentile", "entropy", "mse")


def demand(values: np.ndarray, **fixed: object) -> Demand:
    """A group with these values [K,P], whose extremes are those of the values."""
    count = len(values)
    parts = {
        "name": "t", "slots": list(range(count)), "values": values.astype(np.float32),
        "lows": values.min(axis=1).astype(float), "highs": values.max(axis=1).astype(float),
        "centred": np.zeros(count, bool), "caps": np.full(count, np.inf),
    }  # fmt: skip
    parts["foreseen"] = (parts["lows"], parts["highs"])
    return Demand(**{**parts, **fixed})


def bulk(count: int = 3, width: int = 1000, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, width))


def dense(weight: np.ndarray) -> Reader:
    """A reader of all slots."""
    return Reader(weight, 1.0, 1, np.arange(weight.shape[1]))


@st.composite
def groups(draw: st.DrawFn) -> Demand:
    """Groups of any kind: dead channels, tails, caps, zero points that are fixed, readers."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = int(rng.integers(1, 6))
    values = rng.normal(size=(count, 64)) * 10.0 ** rng.integers(-3, 4, (count, 1))
    values[rng.random(count) < 0.2] = 0
    caps = np.full(count, np.inf)
    if rng.random() < 0.5:
        values, caps = np.clip(values, 0, 6), np.full(count, 6.0)
    found = demand(values, centred=rng.random(count) < 0.3, caps=caps, host=rng.random() < 0.5)
    for _ in range(int(rng.integers(3))):
        found.readers.append(dense(rng.normal(size=(4, count, 1, 1))))
    return found


@given(groups(), st.sampled_from(METHODS))
def test_every_choice_is_one_the_device_can_have(found: Demand, method: str) -> None:
    """Scales above 0, zero points of 8 bits and 0 where they must be, no range beyond a cap."""
    choice = choose(found, method)
    assert np.all(choice.scales > 0)
    assert np.isfinite(choice.scales).all()
    assert not choice.zeros[found.centred].any()
    assert np.all(np.abs(choice.zeros + 0.5) <= 127.5)
    capped = np.isfinite(found.caps)
    reach = (HIGHEST - choice.zeros) * choice.scales.astype(np.float64)
    assert np.all(reach[capped] <= found.caps[capped] * (1 + 1e-6))
    assert np.isfinite(choice.cost)


@given(groups())
def test_auto_is_never_worse_than_the_range_as_it_is(found: Demand) -> None:
    """By its own measure: all that it tries includes that."""
    plain = Demand(**{**vars(found), "readers": [], "host": True})
    kept = choose(plain, "minmax").cost
    assert choose(plain, "auto").cost <= kept * (1 + 1e-9)


@given(groups(), st.sampled_from(METHODS[1:]))
def test_limits_lie_within_the_extremes(found: Demand, method: str) -> None:
    """And have 0 between them."""
    lows, highs = limits(found, method)
    assert np.all((lows <= 0) & (highs >= 0))
    assert np.all(lows >= np.minimum(found.lows, 0) - 1e-9)
    assert np.all(highs <= np.maximum(found.highs, 0) + 1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_the_method_is_told(method: str) -> None:
    """What was chosen, in words for the report."""
    wanted = "minmax" if method == "auto" else method
    assert choose(demand(bulk()), method).method.startswith(wanted)


def test_minmax_clips_nothing() -> None:
    """The extremes themselves."""
    values = bulk()
    lows, highs = limits(demand(values), "minmax")
    assert np.array_equal(lows, values.min(axis=1))
    assert np.array_equal(highs, values.max(axis=1))


def test_percentile_pools_all_slots() -> None:
    """One share for all: what a slot has too few values to tell, all of them together show."""
    values = np.random.default_rng(0).uniform(0, 0.5, (40, 1000))
    values[:, 0] = 1.0  # one in a thousand of each, which counts
    values *= np.linspace(1, 1000, 40)[:, None]
    assert np.allclose(limits(demand(values), "percentile")[1], values.max(axis=1), rtol=2e-3)
    values = np.random.default_rng(0).uniform(0, 0.5, (40, 1000))
    found = demand(values, highs=np.ones(40))
    values[:2, 0] = 1.0  # two in forty thousand, which do not
    lows, highs = limits(found, "percentile")
    assert np.allclose(highs, 0.5, atol=2e-3)
    assert len(set(highs.tolist())) == 1
    assert not lows.any()


def test_percentile_of_a_long_tail() -> None:
    """One value in 20,000 does not count."""
    values = np.full((2, 20_000), 0.25)
    values[:, 0] = 1.0
    _, highs = limits(demand(values), "percentile")
    assert highs == pytest.approx([0.25, 0.25], abs=1e-3)


def test_cautious_goes_half_of_the_way() -> None:
    """In decibels: where percentile clips to a quarter, to a half."""
    values = np.full((2, 20_000), 0.25)
    values[:, 0] = 1.0
    _, highs = limits(demand(values), "cautious")
    assert highs == pytest.approx([0.5, 0.5], abs=1e-3)


def test_entropy_gives_up_an_outlier_and_keeps_a_plain_shape() -> None:
    """As TensorRT does, on the pooled histogram."""
    wild = np.clip(bulk(4, 50_000), -4, 4)
    wild[:, 0] = 30.0
    _, highs = limits(demand(wild), "entropy")
    assert np.all(highs < 8)
    even = np.random.default_rng(0).uniform(-1, 1, (4, 50_000))
    lows, highs = limits(demand(even), "entropy")
    assert np.all(highs > 0.95)
    assert np.all(lows < -0.95)


def squared_errors(found: Demand, method: str) -> np.ndarray:
    """Of every slot, under the limits of a method."""
    scales, zeros = scales_for(*limits(found, method), found.centred)
    stored = Encoding(scales, zeros, scales.max(), 0)
    lost = stored.dequantize(stored.quantize(found.values)) - found.values
    return np.square(lost.astype(np.float64)).mean(axis=1)


def test_mse_clips_each_slot_for_itself() -> None:
    """A long tail is cut off, on its own side; an even distribution is kept."""
    even = np.linspace(-1, 1, 20_000)
    values = np.stack([even, even, even])
    values[[0, 2], -1] = 3.0  # one of many
    found = demand(values, centred=np.asarray([True, False, False]))
    lows, highs = limits(found, "mse")
    assert highs[0] < 0.98 * found.highs[0]
    assert highs[1] > 0.98
    assert highs[2] < 0.98 * found.highs[2]
    assert lows[2] == found.lows[2]
    old, new = squared_errors(found, "minmax"), squared_errors(found, "mse")
    assert np.all(new <= old)
    assert new[0] < 0.98 * old[0]


@pytest.mark.parametrize("method", METHODS)
def test_nothing_but_zeros(method: str) -> None:
    """No range at all is stored exactly."""
    choice = choose(demand(np.zeros((2, 10))), method)
    assert choice.scales.tolist() == [1, 1]
    assert choice.cost == 0


def test_weights_that_differ_move_scales() -> None:
    """A channel that large weights read gets a scale that costs them less."""
    values, weight = bulk(2), np.ones((8, 2, 1, 1))
    weight[:, 0] = 200.0  # alike in the input, but not in the weights
    alike = choose(demand(values, host=True), "auto")
    moved = choose(demand(values, readers=[dense(weight / 200)]), "auto")
    assert alike.method == "minmax"
    assert moved.scales[1] / moved.scales[0] > 2 * alike.scales[1] / alike.scales[0]


def test_the_cost_is_the_error_that_is_made() -> None:
    """White noise through the weights, over the size of the output; to within a tenth."""
    rng = np.random.default_rng(0)
    values = rng.uniform(-1, 1, (4, 20_000))
    weight = rng.normal(size=(16, 4, 1, 1))
    weight /= np.sqrt(np.mean(np.square(weight[:, :, 0, 0] @ values)))
    found = demand(values, readers=[dense(weight)], centred=np.ones(4, bool))
    choice = choose(found, "minmax")
    stored = Encoding(choice.scales, choice.zeros, choice.scales.max(), 0)
    wide = weight[:, :, 0, 0] * choice.scales / choice.scales.max()
    step = np.abs(wide).max(axis=1, keepdims=True) / 127
    rounded = np.rint(wide / step) * step / choice.scales * choice.scales.max()
    made = rounded @ stored.dequantize(stored.quantize(values))
    error = float(np.mean(np.square(made - weight[:, :, 0, 0] @ values)))
    assert choice.cost == pytest.approx(error, rel=0.3)


def test_the_host_counts_every_slot_alike() -> None:
    """Nothing is known of what it does with them."""
    choice = choose(demand(bulk(3) * [[1], [10], [100]], host=True), "auto")
    assert choice.scales[2] > 50 * choice.scales[0]
