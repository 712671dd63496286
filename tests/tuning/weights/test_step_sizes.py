"""Sizes of steps that weights fit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuconv.quant.rounding import LEAST_DAMP, Compensation, compensated, compensation
from npuconv.tuning.weights import step_sizes
from npuconv.tuning.weights.step_sizes import FEW, best_steps


def case(
    seed: int, length: int, groups: int = 2, outputs: int = 3
) -> tuple[np.ndarray, np.ndarray, Compensation]:
    """Weights, the smallest steps, and inputs that go along with each other."""
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(groups, length, 4)) @ rng.normal(1.0, 1.0, (groups, 4, 200))
    seen += 0.1 * rng.normal(size=seen.shape)
    weight = rng.normal(size=(groups, outputs, length))
    by = compensation(seen @ seen.transpose(0, 2, 1) / 200, LEAST_DAMP)
    return weight, np.abs(weight).max(axis=2) / 127, by


def lost(weight: np.ndarray, scales: np.ndarray, by: Compensation) -> np.ndarray:
    return compensated(weight, scales, by)[1]


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, FEW))
def test_never_more_than_the_smallest_step_loses(seed: int, length: int):
    """That is one of the tries; and the largest weight is always reached."""
    weight, smallest, by = case(seed, length)
    scales, steps = best_steps(weight, smallest, [slice(0, length)], [by])
    assert (lost(weight, scales, by) <= lost(weight, smallest, by) * (1 + 1e-9)).all()
    assert np.array_equal(steps, compensated(weight, scales, by)[0])
    assert (scales >= smallest).all()
    assert (scales <= 1.1001 * smallest).all()


def test_a_fraction_is_left_of_depthwise_weights():
    """Of nine: half or less, on average."""
    pairs = []
    for seed in range(20):
        weight, smallest, by = case(seed, 9, groups=8, outputs=1)
        scales, _ = best_steps(weight, smallest, [slice(0, 9)], [by])
        pairs.append((lost(weight, smallest, by).sum(), lost(weight, scales, by).sum()))
    assert sum(new for _, new in pairs) < 0.5 * sum(old for old, _ in pairs)


def test_many_weights_take_the_smallest_step():
    """There some fit badly whatever the step."""
    weight, smallest, by = case(0, FEW + 1)
    scales, steps = best_steps(weight, smallest, [slice(0, FEW + 1)], [by])
    assert np.array_equal(scales, smallest)
    assert np.array_equal(steps, compensated(weight, smallest, by)[0])


@pytest.mark.parametrize("room", [1, 100, 250])
def test_as_many_tries_at_once_as_there_is_room_for(monkeypatch, room: int):
    """The result is the same."""
    weight, smallest, by = case(1, 12)
    whole = best_steps(weight, smallest, [slice(0, 12)], [by])
    monkeypatch.setattr(step_sizes, "_AT_ONCE", room)
    parts = best_steps(weight, smallest, [slice(0, 12)], [by])
    assert all(np.array_equal(one, other) for one, other in zip(whole, parts, strict=True))


def test_what_blocks_lose_is_added_up():
    """One size of a step for all of them."""
    weight, smallest, _ = case(2, 24)
    blocks = [slice(0, 12), slice(12, 24)]
    by = [case(seed, 12)[2] for seed in (3, 4)]
    scales, steps = best_steps(weight, smallest, blocks, by)

    def both(sizes: np.ndarray) -> np.ndarray:
        return sum(lost(weight[:, :, b], sizes, one) for b, one in zip(blocks, by, strict=True))

    assert (both(scales) <= both(smallest) * (1 + 1e-9)).all()
    assert both(scales).sum() < both(smallest).sum()
    for block, one in zip(blocks, by, strict=True):
        assert np.array_equal(steps[:, :, block], compensated(weight[:, :, block], scales, one)[0])
