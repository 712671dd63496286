"""GPTQ: rounding with the data in view."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuconv.errors import InternalError
from npuconv.quantize import settings as thresholds
from npuconv.quantize.gptq import Factor, damping, factorize, gptq, gptq_with_best_steps


def correlated(rng: np.random.Generator, length: int, count: int = 400) -> np.ndarray:
    """Mean products [1,K,K] of inputs that go along with each other and have a mean."""
    mixing = rng.normal(size=(length, max(2, length // 3)))
    seen = mixing @ rng.normal(1.0, 1.0, (mixing.shape[1], count))
    seen += 0.1 * rng.normal(size=seen.shape)
    return (seen @ seen.T / count)[None]


def error(weight: np.ndarray, steps: np.ndarray, scales: np.ndarray, products: np.ndarray) -> float:
    """Mean square of what the outputs lose: d^T H d."""
    lost = weight - steps * scales[:, :, None]
    return float(np.einsum("gmk,gkl,gml->", lost, products, lost))


def nearest(weight: np.ndarray, scales: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(weight / scales[:, :, None]), -127, 127)


def both(seed: int, length: int) -> tuple[float, float]:
    """Errors of rounding to nearest and of GPTQ, on coarse steps."""
    rng = np.random.default_rng(seed)
    products = correlated(rng, length)
    weight = rng.normal(size=(1, 8, length))
    scales = np.abs(weight).max(axis=2) / 7
    steps, _ = gptq(weight, scales, factorize(products, thresholds.ROUNDING_DAMPING))
    return error(weight, nearest(weight, scales), scales, products), error(
        weight, steps, scales, products
    )


@pytest.mark.parametrize("length", [9, 27, 100])
def test_far_better_than_nearest_where_inputs_go_along(length: int) -> None:
    """The error falls to a third on average, and hardly ever rises."""
    pairs = [both(seed, length) for seed in range(8)]
    assert sum(new for _, new in pairs) < sum(old for old, _ in pairs) / 3
    assert sum(new > old for old, new in pairs) <= 1


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 90), st.integers(1, 3))
def test_whole_numbers_of_seven_bits(seed: int, length: int, groups: int) -> None:
    """Within -127..127, for any products, dead inputs and all."""
    rng = np.random.default_rng(seed)
    products = np.concatenate([correlated(rng, length) for _ in range(groups)])
    dead = rng.random(length) < 0.3
    products[:, dead] = 0
    products[:, :, dead] = 0
    weight = rng.normal(size=(groups, 3, length))
    scales = np.abs(weight).max(axis=2) / 127
    steps, _ = gptq(weight, scales, factorize(products, thresholds.ROUNDING_DAMPING))
    assert np.array_equal(steps, np.rint(steps))
    assert np.abs(steps).max() <= 127


def test_independent_inputs_are_rounded_to_the_nearest() -> None:
    """Independent inputs cannot make up for each other."""
    weight = np.random.default_rng(0).normal(size=(2, 4, 70))
    scales = np.abs(weight).max(axis=2) / 127
    products = np.broadcast_to(np.eye(70), (2, 70, 70)) * np.linspace(1, 5, 70)
    assert np.array_equal(
        gptq(weight, scales, factorize(products, 0.1))[0], nearest(weight, scales)
    )


@pytest.mark.parametrize("length", [9, 32, 70])
def test_what_is_lost_is_reported(length: int) -> None:
    """The loss is that of products with the added diagonal, output by output."""
    rng = np.random.default_rng(2)
    products = correlated(rng, length)
    weight = rng.normal(size=(1, 5, length))
    scales = np.abs(weight).max(axis=2) / 20
    steps, lost = gptq(weight, scales, factorize(products, 0.05))
    damped = products + 0.05 * np.diagonal(products, axis1=1, axis2=2).mean() * np.eye(length)
    off = weight - steps * scales[:, :, None]
    assert np.allclose(lost, np.einsum("gmk,gkl,gml->gm", off, damped, off))


def test_the_factor_is_that_of_the_products() -> None:
    """U U^T, in the order of falling squares."""
    products = correlated(np.random.default_rng(1), 12)
    by = factorize(products, 0.05)
    order = by.order[0]
    assert np.all(np.diff(products[0].diagonal()[order]) <= 0)
    damped = products[0] + 0.05 * products[0].diagonal().mean() * np.eye(12)
    assert np.allclose(by.upper[0] @ by.upper[0].T, damped[np.ix_(order, order)])
    assert np.allclose(by.upper[0], np.triu(by.upper[0]))


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e30])
def test_products_of_any_size(size: float) -> None:
    """No input at all, tiny ones and huge ones."""
    by = factorize(correlated(np.random.default_rng(0), 6) * size, thresholds.ROUNDING_DAMPING)
    assert np.isfinite(by.upper).all()
    weight = np.random.default_rng(1).normal(size=(1, 2, 6))
    assert np.abs(gptq(weight, np.full((1, 2), 0.01), by)[0]).max() <= 127


def test_products_that_float32_left_a_little_negative() -> None:
    """A mean taken off of what hardly changes: noise, which must not stop a conversion."""
    products = np.eye(4)[None] * 1e-9
    products[0, 0, 0] = -1e-4
    by = factorize(products, thresholds.ROUNDING_DAMPING)
    assert np.isfinite(by.upper).all()


def test_few_windows_promise_little() -> None:
    """Between a hundredth and all of the mean square."""
    assert damping(9, 100_000) == thresholds.ROUNDING_DAMPING
    assert damping(100, 0) == 1
    assert damping(100, 250) == pytest.approx(0.1)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_products_that_are_not_finite(odd):
    """The number added to a diagonal is bounded."""
    products = np.eye(3)[None].copy()
    products[0, 1, 1] = odd
    with pytest.raises(InternalError, match="not finite"), np.errstate(all="ignore"):
        factorize(products, thresholds.ROUNDING_DAMPING)


# Sizes of steps that weights fit


def case(
    seed: int, length: int, groups: int = 2, outputs: int = 3
) -> tuple[np.ndarray, np.ndarray, Factor]:
    """Weights, the smallest steps, and inputs that go along with each other."""
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(groups, length, 4)) @ rng.normal(1.0, 1.0, (groups, 4, 200))
    seen += 0.1 * rng.normal(size=seen.shape)
    weight = rng.normal(size=(groups, outputs, length))
    by = factorize(seen @ seen.transpose(0, 2, 1) / 200, thresholds.ROUNDING_DAMPING)
    return weight, np.abs(weight).max(axis=2) / 127, by


def lost(weight: np.ndarray, scales: np.ndarray, by: Factor) -> np.ndarray:
    return gptq(weight, scales, by)[1]


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(1, thresholds.ROUNDING_FEW_WEIGHTS))
def test_never_more_than_the_smallest_step_loses(seed: int, length: int):
    """The smallest step is one of the tries; the largest weight is always reached."""
    weight, smallest, by = case(seed, length)
    scales, steps = gptq_with_best_steps(weight, smallest, [slice(0, length)], [by])
    assert (lost(weight, scales, by) <= lost(weight, smallest, by) * (1 + 1e-9)).all()
    assert np.array_equal(steps, gptq(weight, scales, by)[0])
    assert (scales >= smallest).all()
    assert (scales <= 1.1001 * smallest).all()


def test_a_fraction_is_left_of_depthwise_weights():
    """Half of the error of nine weights is left, or less, on average."""
    pairs = []
    for seed in range(20):
        weight, smallest, by = case(seed, 9, groups=8, outputs=1)
        scales, _ = gptq_with_best_steps(weight, smallest, [slice(0, 9)], [by])
        pairs.append((lost(weight, smallest, by).sum(), lost(weight, scales, by).sum()))
    assert sum(new for _, new in pairs) < 0.5 * sum(old for old, _ in pairs)


def test_many_weights_take_the_smallest_step():
    """Some of many weights fit badly whatever the step."""
    weight, smallest, by = case(0, thresholds.ROUNDING_FEW_WEIGHTS + 1)
    scales, steps = gptq_with_best_steps(
        weight, smallest, [slice(0, thresholds.ROUNDING_FEW_WEIGHTS + 1)], [by]
    )
    assert np.array_equal(scales, smallest)
    assert np.array_equal(steps, gptq(weight, smallest, by)[0])


@pytest.mark.parametrize("room", [1, 100, 250])
def test_as_many_tries_at_once_as_there_is_room_for(monkeypatch, room: int):
    """The result is the same."""
    weight, smallest, by = case(1, 12)
    whole = gptq_with_best_steps(weight, smallest, [slice(0, 12)], [by])
    monkeypatch.setattr(thresholds, "ROUNDING_WEIGHTS_AT_ONCE", room)
    parts = gptq_with_best_steps(weight, smallest, [slice(0, 12)], [by])
    assert all(np.array_equal(one, other) for one, other in zip(whole, parts, strict=True))


def test_what_blocks_lose_is_added_up():
    """One size of a step for all of them."""
    weight, smallest, _ = case(2, 24)
    blocks = [slice(0, 12), slice(12, 24)]
    by = [case(seed, 12)[2] for seed in (3, 4)]
    scales, steps = gptq_with_best_steps(weight, smallest, blocks, by)

    def both(sizes: np.ndarray) -> np.ndarray:
        return sum(lost(weight[:, :, b], sizes, one) for b, one in zip(blocks, by, strict=True))

    assert (both(scales) <= both(smallest) * (1 + 1e-9)).all()
    assert both(scales).sum() < both(smallest).sum()
    for block, one in zip(blocks, by, strict=True):
        assert np.array_equal(steps[:, :, block], gptq(weight[:, :, block], scales, one)[0])
