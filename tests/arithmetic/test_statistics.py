"""Statistics by channel: exact extremes and moments, and values from all over every sample."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv.arithmetic.statistics import Accumulator, capacity, observe, quota


def ramp(*shape):
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


def accumulate(arrays, axis=1):
    """Return the statistics of these samples of a tensor."""
    observations = [observe(x, axis, number, len(arrays)) for number, x in enumerate(arrays)]
    total = Accumulator(len(observations[0].lows))
    for observation in observations:
        total.add(observation)
    return total.statistics(axis)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((6, 3, 5, 7), 1), ((2, 5, 7, 3), 3), ((4, 9), None), ((), None), ((2, 8), -1)],
)
def test_extremes_and_moments_are_those_of_numpy(shape, axis):
    """The channel axis may be anywhere; without one, all values are one channel."""
    rng = np.random.default_rng(0)
    arrays = [rng.normal(3, 2, shape).astype(np.float32) for _ in range(5)]
    found = accumulate(arrays, axis)
    rows = [np.moveaxis(x, axis, 0) if axis is not None else x[None] for x in arrays]
    rows = np.stack([x.reshape(len(x), -1) for x in rows], axis=1)  # [C, samples, values]
    flat = rows.reshape(len(rows), -1)
    ends = np.sort(rows.min(2), axis=1), np.sort(rows.max(2), axis=1)
    np.testing.assert_array_equal(found.lows, ends[0][:, 0])
    np.testing.assert_array_equal(found.second_lows, ends[0][:, 1])
    np.testing.assert_array_equal(found.highs, ends[1][:, -1])
    np.testing.assert_array_equal(found.second_highs, ends[1][:, -2])
    assert (found.samples, found.count, found.channels) == (5, flat.shape[1], len(flat))
    if flat.shape[1] * len(flat) < 1024:  # all of them are kept
        assert np.array_equal(np.sort(found.values, axis=1), np.sort(flat, axis=1))
        np.testing.assert_allclose(found.means, flat.mean(1, dtype=np.float64))
        np.testing.assert_allclose(found.variances, flat.var(1, dtype=np.float64))


def test_the_two_largest_of_a_sample_are_not_the_two_of_all():
    """The next to largest is the largest of another sample."""
    found = accumulate([np.float32([[[1, 9, 8]]]), np.float32([[[7, -2, -3]]])])
    assert (found.highs, found.second_highs) == (9, 7)
    assert (found.lows, found.second_lows) == (-3, 1)


def test_each_sample_contributes_alike():
    """A hundred samples of plenty of values: ten values of each."""
    found = accumulate([np.full((1, 2, 40, 40), number, np.float32) for number in range(100)])
    assert found.values.shape[1] > 800
    _, counts = np.unique(found.values[0], return_counts=True)
    assert len(counts) == 100
    assert (counts.min(), counts.max()) >= (8, 8)
    assert counts.max() <= 10


def test_more_samples_than_positions():
    """Every second sample contributes one value."""
    found = accumulate([np.full((1, 1, 3), number, np.float32) for number in range(1500)])
    assert found.values[0].tolist() == list(range(0, 1500, 2))
    assert (found.samples, found.count, found.highs) == (1500, 4500, 1499)


def test_moments_are_weighted_by_counts():
    """A sample with more values weighs more."""
    arrays = [ramp(1, 2, 1), ramp(1, 2, 3)]
    found = accumulate(arrays)
    everything = np.concatenate([x[0] for x in arrays], axis=1).astype(np.float64)
    assert np.allclose(found.means, everything.mean(1))
    assert np.allclose(found.variances, everything.var(1))
    assert (found.channels, found.count) == (2, 4)


def test_a_sample_without_values():
    """It changes nothing; channels without any values have a range of 0."""
    empty = np.zeros((0, 2, 3), np.float32)
    found, nothing = accumulate([ramp(1, 2, 3) + 1, empty]), accumulate([empty])
    assert (found.lows.tolist(), found.highs.tolist()) == ([1, 4], [3, 6])
    assert (nothing.lows.tolist(), nothing.highs.tolist()) == ([0, 0], [0, 0])
    assert (nothing.count, nothing.values.shape, nothing.means.tolist()) == (0, (2, 0), [0, 0])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(value):
    """A single one is seen."""
    x = ramp(1, 2, 30)
    assert observe(x, 1, 0, 1).is_finite
    assert observe(x[:0], 1, 0, 1).is_finite
    x[0, 1, 17] = value
    assert not observe(x, 1, 0, 1).is_finite


@given(
    st.tuples(st.integers(1, 200), st.integers(1, 5), st.integers(1, 200)),
    st.integers(0, 600),
    st.integers(1, 600),
)
def test_picks_are_as_many_as_wanted(extents, number, samples):
    """A sample has at least one value, at most its share, at odd steps; channels are alike."""
    _, channels, behind = extents
    x = ramp(*extents)
    values = observe(x, 1, number, samples).values
    assert 1 <= values.shape[1] <= quota(channels, samples)
    assert np.array_equal(values, values[:1] + behind * np.arange(channels)[:, None])
    rows = np.sort(values[0])
    places = np.unique(rows % behind)  # of the first block
    assert len(np.unique(np.diff(places))) <= 1
    assert all(step % 2 for step in np.diff(places).tolist())


def test_everything_of_a_small_tensor():
    """All values of a small tensor are kept."""
    assert sorted(observe(ramp(1, 4, 7, 9), 1, 5, 16).values.ravel().tolist()) == list(range(252))


def test_starts_differ():
    """The first value differs from sample to sample."""
    x = ramp(1, 1, 300, 300)
    assert len({float(observe(x, 1, number, 64).values[0, 0]) for number in range(64)}) == 64


def test_capacity():
    """Wide tensors keep fewer positions, but at least one."""
    assert [capacity(c) for c in (0, 1, 1024, 2048, 2**20, 2**21)] == [1024, 1024, 1024, 512, 1, 1]
    assert [quota(1, n) for n in (0, 1, 3, 1024, 5000)] == [1024, 1024, 341, 1, 1]
