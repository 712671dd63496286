"""Range margins for what few samples have not shown."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.arithmetic.statistics import Statistics
from npuconv.quantize import settings
from npuconv.quantize.scale_constraints import weight_of_family, with_margin


def seen(lows: list[float], highs: list[float], samples: int = 8, each: int = 16) -> Statistics:
    """Statistics of a tensor with ``each`` values of a channel in every sample."""
    low, high = np.float32(lows), np.float32(highs)
    return Statistics(
        axis=1, lows=low, highs=high,
        values=np.stack([low, high], axis=1), samples=samples, count=samples * each,
        second_lows=low, second_highs=high,
    )  # fmt: skip


def test_what_was_seen_enough_is_believed():
    """Hundreds of maps: the extremes as they are, in float64."""
    stats = seen([-1, -2], [3, 40], samples=2000, each=10_000)
    lows, highs = with_margin(stats)
    assert (lows.tolist(), highs.tolist()) == ([-1, -2], [3, 40])
    assert lows.dtype == np.float64


def test_one_channel_has_no_others_to_learn_from():
    """Its extremes are what there is."""
    assert [part.tolist() for part in with_margin(seen([-1], [3], samples=1))] == [[-1], [3]]


def test_a_range_only_grows_and_an_end_at_0_stays():
    """A channel seen seldom gets part of the range of the largest; a Relu's low end is 0."""
    lows, highs = with_margin(seen([0, 0, 0], [1, 4, 0]))
    assert lows.tolist() == [0, 0, 0]
    assert 1 < highs[0] < highs[1]
    assert highs[1] >= 4
    assert highs[2] == pytest.approx(4)  # nothing was seen of it


def test_a_class_that_no_sample_was_of():
    """Its logit was negative throughout; those of the others were not."""
    stats = seen([-13, -12, -22], [9, 12, -9], samples=28, each=1)
    lows, highs = with_margin(stats)
    assert highs[2] > 8
    assert lows[2] == pytest.approx(-22)
    enough = seen([-13, -12, -22], [9, 12, -9], samples=3000, each=100)
    assert with_margin(enough)[1].tolist() == [9, 12, -9]


def test_more_samples_give_a_smaller_margin():
    """The margin shrinks with independent values; those of a map count as its side."""
    reach = [with_margin(seen([0, 0], [1, 4], samples=n))[1][0] for n in (1, 8, 64, 512)]
    assert reach == sorted(reach, reverse=True)
    assert weight_of_family(
        seen([-1], [1], samples=int(settings.MARGIN_HALF_WEIGHT_VALUES), each=1)
    ) == pytest.approx(0.5)
    assert weight_of_family(seen([-1], [1], samples=10, each=900)) == pytest.approx(0.5)


def test_silence_shows_nothing():
    """A map of a channel that is zero in three places of four counts as half of its side."""
    stats = seen([0, -1], [1, 1], samples=10, each=900)
    stats.values = np.float32([[0, 0.01, 0, 1], [-1, 0.5, 0.25, 1]])
    assert weight_of_family(stats) == pytest.approx([1 / (1 + 0.5), 0.5])


def test_where_no_values_are_kept_the_extremes_are_all_there_is():
    """A tensor without elements gives no division by zero."""
    stats = seen([-1, -2], [1, 4], samples=1, each=1)
    stats.values = np.zeros((2, 0), np.float32)
    assert weight_of_family(stats) == pytest.approx(
        1 / (1 + 1 / settings.MARGIN_HALF_WEIGHT_VALUES)
    )


def test_a_channel_that_was_nearly_always_silent_may_reach_as_far_as_the_others():
    """A layer of 6s where one channel showed 0.01, once."""
    values = np.tile(np.float32([0, 3, 6, 5]), (8, 40))
    values[0] = 0
    values[0, 7] = 0.01
    stats = seen([0] * 8, [0.01] + [6] * 7, samples=40, each=49)
    stats.values = values
    _, highs = with_margin(stats)
    assert highs[0] > 2
    assert highs[1:] == pytest.approx(6)


def test_a_range_grows_towards_those_of_its_own_layer():
    """Scores beside boxes keep their own."""
    stats = seen([0, 0, 0, 0], [1, 2, 100, 200], samples=1, each=1)
    _, highs = with_margin(stats, [7, 7, 9, 9])
    assert highs[0] < 3
    assert highs[2] > 150


def test_partial_sums_grow_from_the_middle_of_their_range():
    """Sums far from 0 have the margin of sums around it, and widen no other channel by that."""
    around = seen([-1, -1, -2], [1, 1, 2], samples=24, each=1)
    moved = seen([-1, 19, -2], [1, 21, 2], samples=24, each=1)
    near, far = (np.asarray(with_margin(stats, summed=True)) for stats in (around, moved))
    assert far - near == pytest.approx(np.asarray([[0, 20, 0]] * 2))
    assert near == pytest.approx(np.asarray([-near[1], near[1]]))
    assert np.all(near[1] > [1, 1, 2])
    assert np.all(near[1] < 2 * (1 + settings.MARGIN_SUM_GROWTH))


# What more samples would show


def tailed(
    highs: list[float], seconds: list[float], samples: int = 5000, low: float = 0.0
) -> Statistics:
    """Statistics that were seen so often that only tails count."""
    stats = seen([low] * len(highs), highs, samples=samples, each=10_000)
    stats.second_highs = np.float32(seconds)
    return stats


def test_ends_grow_by_what_the_largest_has_over_the_next():
    """The median over channels, for all of them; an end at 0 stays."""
    stats = tailed([11, 10, 30], [10, 5, 28])
    lows, highs = with_margin(stats)
    assert highs.tolist() == pytest.approx([12.1, 11, 33], rel=2e-3)
    assert lows.tolist() == [0] * 3
    assert with_margin(stats, tails=False)[1].tolist() == [11, 10, 30]


def test_both_ends_by_themselves():
    """Small values may have a tail where large ones have none."""
    stats = tailed([10, 20], [10, 20], low=-2.0)
    stats.second_lows = np.float32([-1.6, -1.6])
    lows, highs = with_margin(stats)
    assert lows.tolist() == pytest.approx([-2.4, -2.4])
    assert highs.tolist() == [10, 20]


def test_one_channel_has_a_tail_too():
    """The margin of a channel is its own."""
    assert with_margin(tailed([11], [10]))[1].tolist() == pytest.approx([12.1])


def test_there_is_an_end_to_it():
    """One sample that is an outlier does not decide how wide steps are."""
    assert with_margin(tailed([100, 1], [1, 0.01]))[1].tolist() == pytest.approx(
        [100 * settings.MARGIN_LARGEST_TAIL_RATIO, settings.MARGIN_LARGEST_TAIL_RATIO]
    )


@pytest.mark.parametrize(("samples", "factor"), [(1, 1.0), (2, 1.0), (3, 1.1), (50, 1.1)])
def test_two_samples_foretell_nothing(samples: int, factor: float):
    """Nor does one."""
    assert with_margin(tailed([11], [10], samples=samples))[1] == pytest.approx(11 * factor)


def test_it_foretells_the_largest_of_a_new_sample():
    """The next sample of a heavy tail goes beyond half of the time, as all did before."""
    rng, beyond = np.random.default_rng(0), []
    for _ in range(400):
        reach = np.sort(rng.pareto(4, 30) + 1)
        stats = tailed([reach[-1]], [reach[-2]], samples=30)
        later = (rng.pareto(4, 30) + 1).max()
        beyond.append((later > reach[-1], later > with_margin(stats)[1][0]))
    plain, wide = np.mean(beyond, axis=0)
    assert plain == pytest.approx(0.5, abs=0.1)
    assert wide < plain - 0.1


def test_partial_sums_of_few_values_reach_further():
    """Ranges of few values grow by half, those of many as little as others."""
    few, many = seen([-1], [3], samples=1, each=1), seen([-1], [3], samples=2000, each=10_000)
    lows, highs = with_margin(few, summed=True)
    assert (lows[0] + highs[0]) / 2 == pytest.approx(1)
    assert highs[0] - lows[0] == pytest.approx(4 * (1 + settings.MARGIN_SUM_GROWTH), rel=0.01)
    np.testing.assert_allclose(with_margin(many, summed=True), with_margin(many), rtol=1e-3)
