"""Channels weighed against the weights that read them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuconv.quant.encoding import HIGHEST, scales_for
from npuconv.tuning.scales.balance import balanced
from npuconv.tuning.scales.demands import Demand
from npuconv.tuning.scales.readers import Reader
from npuconv.tuning.scales.search import _errors, _input_error, _weight_error

CHANNELS, OUTPUTS = 12, 8


def demand(readers: list[Reader], values: np.ndarray, cap: float = np.inf) -> Demand:
    """A group whose channels have these values [K,P]."""
    count = len(values)
    ends = values.min(axis=1).astype(float), values.max(axis=1).astype(float)
    fixed, caps = np.zeros(count, bool), np.full(count, cap)
    slots = list(range(count))
    return Demand("t", slots, *ends, values, fixed, caps, ends, readers=readers)


def reader(weight: np.ndarray, group: int = 1) -> Reader:
    return Reader(weight, 1.0, group, np.arange(weight.shape[1] * group))


def uneven(seed: int) -> tuple[Reader, np.ndarray]:
    """Inputs that are all large, and some weights that are larger than the others."""
    rng = np.random.default_rng(seed)
    sizes = 10.0 ** rng.uniform(-1, 1, (1, CHANNELS, 1, 1))
    weight = rng.standard_normal((OUTPUTS, CHANNELS, 1, 1)) * sizes
    values = rng.uniform(0, 1, (CHANNELS, 200)) * 10.0 ** rng.uniform(-1, 1, (CHANNELS, 1))
    return reader(weight), values.astype(np.float32)


def run(found: Demand) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Scales, zero points, and the balanced scales."""
    scales, zeros = scales_for(found.lows, found.highs, found.centred)
    return scales, zeros, balanced(found, scales, zeros, _errors(found, scales, zeros))


def estimate(found: Demand, scales: np.ndarray, zeros: np.ndarray) -> float:
    """As the choice of ranges works it out, on the values themselves."""
    errors = _errors(found, scales, zeros)
    parts = (_input_error(r, errors) + _weight_error(found, r, scales) for r in found.readers)
    return sum(parts)


@settings(max_examples=40)
@given(st.integers(0, 10_000))
def test_less_is_lost(seed):
    """By the estimate that all ranges are chosen by; no value is clipped for it."""
    weights, values = uneven(seed)
    found = demand([weights], values)
    scales, zeros, wide = run(found)
    if wide is None:
        return
    assert (wide >= scales * 0.9999).all()
    assert (wide <= scales * 16.001).all()
    assert estimate(found, wide, zeros) < 0.99 * estimate(found, scales, zeros)


def test_it_is_found_where_there_is_something_to_find():
    """In most of such layers."""
    taken = [run(demand([w], v))[2] is not None for w, v in map(uneven, range(20))]
    assert sum(taken) > 10


def test_channels_are_made_coarser_for_the_steps_of_their_weights():
    """Half of them reach far and have small weights: nobody sees their steps."""
    rng, half = np.random.default_rng(1), CHANNELS // 2
    weight = rng.uniform(0.5, 1, (OUTPUTS, CHANNELS, 1, 1))
    weight[:, :half] /= 400
    values = rng.uniform(0, 1, (CHANNELS, 500)).astype(np.float32)
    values[half:] /= 50
    scales, _, wide = run(demand([reader(weight)], values))
    assert wide is not None
    assert (wide[:half] > 2 * scales[:half]).all()
    assert (wide[half:] < 1.5 * scales[half:]).all()


def test_no_channel_goes_beyond_its_bound():
    """What a Clip cuts off must not be let through."""
    weights, values = uneven(3)
    free, bound = (demand([weights], values, cap) for cap in (np.inf, float(values.max())))
    scales, zeros, wide = run(free)
    assert wide is not None
    assert (wide * (HIGHEST - zeros) > values.max()).any()
    _, _, held = run(bound)
    assert held is not None
    assert (held * (HIGHEST - zeros) <= values.max() * 1.0001).all()
    assert (scales * (HIGHEST - zeros) <= values.max() * 1.01).all()


def test_a_channel_without_errors_stays():
    """Its steps are nobody's."""
    weights, values = uneven(3)
    values[2] = 0
    scales, _, wide = run(demand([weights], values))
    assert wide is not None
    assert wide[2] == scales[2]


def test_rows_without_weights_are_no_trouble():
    """Nor are columns, nor readers that have none at all."""
    weights, values = uneven(3)
    stored = weights.stored.copy()
    stored[1], stored[:, 4] = 0, 0
    _, _, wide = run(demand([reader(stored), reader(0 * stored)], values))
    assert wide is not None
    assert np.isfinite(wide).all()


@pytest.mark.parametrize("group", [1, CHANNELS])
def test_nothing_to_weigh(group):
    """Nobody reads it, or each channel has weights of its own."""
    _, values = uneven(0)
    deep = [reader(np.ones((CHANNELS, 1, 3, 3)), CHANNELS)] if group > 1 else []
    assert run(demand(deep, values))[2] is None


def test_even_channels_have_nothing_to_gain():
    """A gain below a twentieth is not worth other weights."""
    rng = np.random.default_rng(0)
    values = rng.uniform(-1, 1, (CHANNELS, 300)).astype(np.float32)
    weight = rng.choice([-1.0, 1.0], (OUTPUTS, CHANNELS, 1, 1))
    assert run(demand([reader(weight)], values))[2] is None
