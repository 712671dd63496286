"""Room for what few samples have not shown."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.quant.statistics import Statistics
from npuconv.tuning.scales.margins import ENOUGH, unseen, widened


def seen(lows: list[float], highs: list[float], samples: int = 8, each: int = 16) -> Statistics:
    """Statistics of a tensor with ``each`` values of a channel in every sample."""
    low, high = np.float32(lows), np.float32(highs)
    return Statistics(
        name="t", axis=1, lows=low, highs=high, means=(low + high) / 2, squares=high**2,
        values=np.stack([low, high], axis=1), samples=samples, count=samples * each,
    )  # fmt: skip


def test_what_was_seen_enough_is_believed():
    """Hundreds of maps: the extremes as they are, in float64."""
    stats = seen([-1, -2], [3, 40], samples=2000, each=10_000)
    lows, highs = widened(stats)
    assert (lows.tolist(), highs.tolist()) == ([-1, -2], [3, 40])
    assert lows.dtype == np.float64


def test_one_channel_has_no_others_to_learn_from():
    """Its extremes are what there is."""
    assert [part.tolist() for part in widened(seen([-1], [3], samples=1))] == [[-1], [3]]


def test_a_range_only_grows_and_an_end_at_0_stays():
    """A channel seen seldom gets part of the range of the largest; a Relu's low end is 0."""
    lows, highs = widened(seen([0, 0, 0], [1, 4, 0]))
    assert lows.tolist() == [0, 0, 0]
    assert 1 < highs[0] < highs[1]
    assert highs[1] >= 4
    assert highs[2] == pytest.approx(4)  # nothing was seen of it


def test_a_class_that_no_sample_was_of():
    """Its logit was negative throughout; those of the others were not."""
    stats = seen([-13, -12, -22], [9, 12, -9], samples=28, each=1)
    lows, highs = widened(stats)
    assert highs[2] > 8
    assert lows[2] == pytest.approx(-22)
    enough = seen([-13, -12, -22], [9, 12, -9], samples=3000, each=100)
    assert widened(enough)[1].tolist() == [9, 12, -9]


def test_more_samples_give_less_room():
    """As fast as independent values come in; those of a map count as its side."""
    reach = [widened(seen([0, 0], [1, 4], samples=n))[1][0] for n in (1, 8, 64, 512)]
    assert reach == sorted(reach, reverse=True)
    assert unseen(seen([-1], [1], samples=int(ENOUGH), each=1)) == pytest.approx(0.5)
    assert unseen(seen([-1], [1], samples=10, each=900)) == pytest.approx(0.5)


def test_silence_shows_nothing():
    """Of a channel that is zero in three places of four, a map counts as half of its side."""
    stats = seen([0, -1], [1, 1], samples=10, each=900)
    stats.values = np.float32([[0, 0.01, 0, 1], [-1, 0.5, 0.25, 1]])
    assert unseen(stats) == pytest.approx([1 / (1 + 0.5), 0.5])


def test_where_no_values_are_kept_the_extremes_are_all_there_is():
    """As of a tensor without elements; nothing is divided by nothing."""
    stats = seen([-1, -2], [1, 4], samples=1, each=1)
    stats.values = np.zeros((2, 0), np.float32)
    assert unseen(stats) == pytest.approx(1 / (1 + 1 / ENOUGH))


def test_a_channel_that_was_nearly_always_silent_may_reach_as_far_as_the_others():
    """A layer of 6s where one channel showed 0.01, once."""
    values = np.tile(np.float32([0, 3, 6, 5]), (8, 40))
    values[0] = 0
    values[0, 7] = 0.01
    stats = seen([0] * 8, [0.01] + [6] * 7, samples=40, each=49)
    stats.values = values
    _, highs = widened(stats)
    assert highs[0] > 2
    assert highs[1:] == pytest.approx(6)


def test_a_range_grows_towards_those_of_its_own_layer():
    """Scores beside boxes keep their own."""
    stats = seen([0, 0, 0, 0], [1, 2, 100, 200], samples=1, each=1)
    _, highs = widened(stats, [7, 7, 9, 9])
    assert highs[0] < 3
    assert highs[2] > 150


def drawn(spread: float, samples: int = 30) -> Statistics:
    """Samples whose reach differs by that much, in the logarithm."""
    rng = np.random.default_rng(1)
    reach = np.exp(spread * rng.standard_normal(samples))
    values = np.float32(rng.uniform(0.9, 1, (1, samples, 4)) * reach[:, None]).reshape(1, -1)
    return Statistics(
        name="t", axis=1, lows=np.zeros(1, np.float32), highs=values.max(axis=1),
        means=values.mean(axis=1), squares=values.var(axis=1), values=values, samples=samples,
        count=values.size, numbers=np.arange(samples), widths=np.full(samples, 4),
    )  # fmt: skip


def test_what_more_samples_would_show():
    """About the largest of three times as many; where all are alike nothing more is to come."""
    for spread in (0.0, 0.2, 0.5):
        stats = drawn(spread)
        low, high = widened(stats, outlook=3.0)
        assert low[0] == 0
        assert high[0] / stats.highs[0] == pytest.approx(np.exp(0.44 * spread), rel=0.1)
    assert widened(drawn(0.5))[1] == drawn(0.5).highs


def several(samples: int) -> Statistics:
    """One value of 20 classes in every sample; the largest are those of one class each."""
    rng = np.random.default_rng(0)
    values = np.exp(rng.normal(0, 0.3, (20, samples))).astype(np.float32)
    return Statistics(
        name="t", axis=1, lows=0 * values.min(1), highs=values.max(1), means=values.mean(1),
        squares=(values**2).mean(1), values=values, samples=samples, count=samples,
        numbers=np.arange(samples), widths=np.ones(samples, np.int64),
    )  # fmt: skip


def test_an_output_may_go_beyond_all_that_was_seen_of_any_channel():
    """A sample that is surer than all before; the more there were, the less likely."""
    stats = several(28)
    plain, shown = widened(stats)[1], widened(stats, shown=True)[1]
    largest = stats.highs.max()
    assert plain.max() == pytest.approx(largest)
    assert (shown > plain).all()
    assert 1.01 * largest < shown.max() < 1.3 * largest
    assert widened(stats, shown=True)[0].tolist() == [0] * 20
    more = several(1000)
    assert widened(more, shown=True)[1].max() < 1.02 * more.highs.max()


def test_two_samples_foretell_nothing():
    """Nor does one."""
    stats = drawn(0.5, samples=2)
    assert widened(stats, outlook=3.0)[1] == stats.highs
