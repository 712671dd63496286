"""Statistics by channel: joining parts gives what the whole would have given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv.arithmetic import statistics
from npuconv.arithmetic.statistics import Statistics, capacity, join, quota, spread_order, thin


def of_sample(number, channels=2, positions=None, name="t"):
    """Return the statistics of one sample, each value with its sample."""
    width = quota(channels, number + 1) if positions is None else positions
    values = np.float32(number) + np.arange(width, dtype=np.float32) / 2048
    values = np.tile(values, (channels, 1))
    wide = values.astype(np.float64)
    return Statistics(
        name, 1, values.min(1), values.max(1), wide.mean(1), (wide**2).mean(1), values,
        1, width, number,
    )  # fmt: skip


def assert_same(one, two):
    for key in ("lows", "highs", "second_lows", "second_highs", "values", "numbers", "widths"):
        assert np.array_equal(getattr(one, key), getattr(two, key)), key
    assert (one.samples, one.count, one.first) == (two.samples, two.count, two.first)
    assert np.allclose(one.means, two.means, rtol=1e-12)
    assert np.allclose(one.squares, two.squares, rtol=1e-12)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.sampled_from([2, 2**17, 2**19]))
def test_parts_give_what_the_whole_gives(sizes, channels):
    """However the samples are split, the same stays; also of tensors with few positions each."""
    singles = [of_sample(number, channels=1) for number in range(sum(sizes))]
    limit, statistics.VALUES = statistics.VALUES, statistics.VALUES // channels
    try:
        whole = join(singles)
        ends = np.cumsum(sizes)
        parts = [join(singles[end - size : end]) for end, size in zip(ends, sizes, strict=True)]
        assert_same(join(parts), whole)
        assert whole.values.shape[1] <= capacity(1)
    finally:
        statistics.VALUES = limit


def test_each_sample_contributes_alike():
    """A hundred samples of plenty of values: ten values of each."""
    whole = join([of_sample(number) for number in range(100)])
    assert whole.values.shape == (2, 1000)
    assert whole.numbers.tolist() == list(range(100))
    assert set(whole.widths) == {10}
    assert np.array_equal(np.floor(whole.values[0]), np.repeat(np.arange(100), 10))


def test_the_two_largest_of_all_parts():
    """Both may be of one of them."""
    ends = [(-1, 3, -1, 2), (-5, 9, -4, 8), (-2, 7, -2, 1)]
    parts = []
    for number, (low, high, next_low, next_high) in enumerate(ends):
        part = of_sample(number, channels=1)
        part.lows, part.highs = np.float32([low]), np.float32([high])
        part.second_lows, part.second_highs = np.float32([next_low]), np.float32([next_high])
        parts.append(part)
    whole = join(parts)
    assert (whole.lows, whole.second_lows) == (-5, -4)
    assert (whole.highs, whole.second_highs) == (9, 8)
    some = join([parts[0], join([replace(parts[2], first=1)])])
    assert (some.second_lows, some.second_highs) == (-2, 3)
    assert of_sample(0).second_highs.tolist() == of_sample(0).highs.tolist()


def test_more_samples_than_positions():
    """Every second sample stays, with one value."""
    whole = join([of_sample(number, positions=3) for number in range(1500)])
    assert whole.numbers.tolist() == list(range(0, 1500, 2))
    assert set(whole.widths) == {1}
    assert (whole.samples, whole.count) == (1500, 4500)


def test_a_sample_with_few_values_gives_all():
    """A sample gives no more values than it has."""
    whole = join([of_sample(0, positions=4), of_sample(1, positions=1000)])
    assert whole.widths.tolist() == [4, 512]


def test_moments_are_weighted_by_counts():
    """A sample with more values weighs more."""
    one, two = of_sample(0, positions=1), of_sample(1, positions=3)
    merged = join([one, two])
    everything = np.concatenate([one.values, two.values], axis=1).astype(np.float64)
    assert np.allclose(merged.means, everything.mean(1))
    assert np.allclose(merged.squares, (everything**2).mean(1))
    assert np.allclose(merged.variances, everything.var(1))
    assert (merged.channels, merged.count) == (2, 4)


def test_a_variance_is_not_negative():
    """A mean of squares that rounding makes too small gives a variance of 0."""
    each = of_sample(0)
    each.squares = each.means**2 - 1e-9
    assert (each.variances == 0).all()


@pytest.mark.parametrize(
    "other", [of_sample(2), of_sample(0), of_sample(1, name="u"), of_sample(1, channels=3)]
)
def test_parts_that_do_not_belong_together(other):
    """A gap, the same sample twice, another tensor, other channels."""
    with pytest.raises(ValueError, match="tensor 't'"):
        join([of_sample(0), other])


def test_capacity():
    """Wide tensors keep fewer positions, but at least one."""
    assert [capacity(c) for c in (0, 1, 1024, 2048, 2**20, 2**21)] == [1024, 1024, 1024, 512, 1, 1]
    assert [quota(1, n) for n in (0, 1, 3, 1024, 5000)] == [1024, 1024, 341, 1, 1]


@given(st.integers(1, 300))
def test_beginnings_are_spread(length):
    """Each is a permutation, and its first values are far apart."""
    order = spread_order(length)
    assert sorted(order.tolist()) == list(range(length))
    for beginning in (2, 4, 8):
        if length >= 4 * beginning:
            gaps = np.diff(np.sort(order[:beginning]))
            assert gaps.min() >= length // (2 * beginning)


def test_thinning_keeps_what_is_little():
    """Thinning copies nothing away while everything may stay."""
    kept = of_sample(0, positions=5).stored_values
    same = thin([kept], 1)
    assert np.array_equal(same.values, kept.values)
    assert (same.numbers.tolist(), same.widths.tolist()) == ([0], [5])
