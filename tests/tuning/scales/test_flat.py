"""Steps that hold what samples are full of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv.quant.statistics import Statistics
from npuconv.tuning.scales.demands import Demand
from npuconv.tuning.scales.flat import FACTORS, SHARED, fitted, owners
from npuconv.tuning.scales.search import choose

EACH, SAMPLES = 32, 8


def demand(values: np.ndarray, samples: np.ndarray | None = None, **fixed: object) -> Demand:
    """A group with these values [K,P], so many of each sample."""
    count = len(values)
    lows, highs = np.minimum(values.min(axis=1), 0), np.maximum(values.max(axis=1), 0)
    parts = {
        "name": "t", "slots": list(range(count)), "values": values.astype(np.float32),
        "lows": lows.astype(float), "highs": highs.astype(float), "foreseen": (lows, highs),
        "centred": np.zeros(count, bool), "caps": np.full(count, np.inf),
        "samples": np.repeat(np.arange(SAMPLES), EACH) if samples is None else samples,
    }  # fmt: skip
    return Demand(**{**parts, **fixed})


def full(value: float, seed: int = 0, share: float = 0.7) -> np.ndarray:
    """A channel that is this value in most places of every sample."""
    rng = np.random.default_rng(seed)
    values = rng.uniform(0, 1, EACH * SAMPLES)
    values[rng.random(values.size) < share] = value
    values[0] = 1.0
    return values


def plain(found: Demand) -> tuple[np.ndarray, np.ndarray]:
    """Scales that reach just as far as the values, and zero points."""
    scales = (found.highs / 127).astype(np.float32)
    return scales, np.zeros(found.count, np.int32)


def shared(found: Demand, scales: np.ndarray) -> np.ndarray:
    """Mean square over samples of the mean error of each [K]."""
    steps = scales[:, None].astype(float)
    errors = np.clip(np.rint(found.values / steps), -128, 127) * steps - found.values
    return np.square(errors.reshape(found.count, SAMPLES, EACH).mean(axis=2)).mean(axis=1)


@pytest.mark.parametrize("at", [20.5, 60.5, 110.5])
def test_a_background_between_two_steps(at):
    """Half a step off, all of it; a step that is a little wider holds it nearly exactly."""
    found = demand(np.stack([full(at / 127), full(at / 127, seed=1)]))
    before, zeros = plain(found)
    after = fitted(found, before, zeros)
    assert np.all(after > before)
    assert np.all(after <= before * np.float32(FACTORS[-1]))
    assert np.all(shared(found, after) < 0.05 * shared(found, before))


def test_several_backgrounds():
    """Those of all samples count, so none of them is half a step off."""
    rng = np.random.default_rng(2)
    each = [np.where(rng.random(EACH) < 0.8, rng.random(), rng.random(EACH)) for _ in range(8)]
    found = demand(np.concatenate(each)[None])
    before, zeros = plain(found)
    assert shared(found, fitted(found, before, zeros)) < 0.7 * shared(found, before)


def test_samples_without_a_background():
    """What is unlike has unlike errors: nothing to win, and the steps stay."""
    found = demand(np.random.default_rng(1).normal(size=(4, EACH * SAMPLES)))
    before, zeros = plain(demand(np.abs(found.values)))
    moved = fitted(found, before, zeros) != before
    assert moved.mean() < 0.5


def test_a_bound_of_a_clip_stays():
    """No step may reach beyond it."""
    found = demand(full(60.5 / 127)[None], caps=np.ones(1))
    before, zeros = plain(found)
    assert fitted(found, before, zeros) == before


@given(st.integers(0, 2**32 - 1))
def test_it_is_never_worse(seed):
    """By the cost that it is chosen by, and nothing is clipped that was not."""
    rng = np.random.default_rng(seed)
    found = demand(np.abs(rng.normal(size=(3, EACH * SAMPLES))).round(int(rng.integers(3))))
    before, zeros = plain(found)
    before = np.maximum(before, np.float32(1e-6))
    after = fitted(found, before, zeros)
    assert np.all(after >= before)

    def cost(scales: np.ndarray) -> np.ndarray:
        steps = scales[:, None].astype(float)
        errors = np.clip(np.rint(found.values / steps), -128, 127) * steps - found.values
        return np.square(errors).mean(axis=1) + SHARED * shared(found, scales)

    # What is chosen by leaves out what chance alone would share.
    assert np.all(cost(after) <= 1.5 * cost(before) + 1e-9)


@pytest.mark.parametrize("method", ["auto", "cautious", "minmax", "mse"])
def test_ranges_that_the_user_chose_stay(method):
    """Only where npuconv chooses may a range be wider than it says."""
    found = demand(full(60.5 / 127)[None])
    apart = demand(full(60.5 / 127)[None], samples=np.arange(EACH * SAMPLES))
    apart.samples = None
    changed = choose(found, method).scales != choose(apart, method).scales
    assert bool(changed) == (method in ("auto", "cautious"))


def statistics(numbers: list[int], widths: list[int], channels: int = 2) -> Statistics:
    """Of which only the samples of the values count here."""
    values, none = np.zeros((channels, sum(widths)), np.float32), np.zeros(channels)
    return Statistics(
        "t", 1, none, none, none, none, values, len(numbers), 1, 0,
        np.asarray(numbers, np.int64), np.asarray(widths, np.int64),
    )  # fmt: skip


def test_owners():
    """The sample of every value that is looked at, if it is the same for all slots."""
    one, other = statistics([0, 2], [3, 2]), statistics([0, 2], [3, 2], channels=1)
    rows = [[(one, 0)], [(one, 1)], [(other, 0)]]
    assert owners(rows, np.arange).tolist() == [0, 0, 0, 2, 2]
    assert owners(rows, lambda length: np.arange(0, length, 2)).tolist() == [0, 0, 2]
    assert owners([*rows, [(one, 0), (one, 1)]], np.arange) is None
    assert owners([*rows, [(statistics([0, 2], [2, 3]), 0)]], np.arange) is None
    assert owners([[(statistics([0, 1], [1, 1]), 0)]], np.arange) is None
    assert owners([[(statistics([], []), 0)]], np.arange) is None
