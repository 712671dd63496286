"""Interval of the SQNR on new samples."""

from __future__ import annotations

import math

import numpy as np
import pytest

from npuconv.evaluate import interval
from npuconv.evaluate.interval import INTERVAL, MIN_SAMPLES, Powers, expected, pooled_db, sentences


def drawn(count: int, spread_db: float, seed: int = 0, mean_db: float = 30.0) -> list[Powers]:
    """Return samples whose SQNR has this spread."""
    db = np.random.default_rng(seed).normal(mean_db, spread_db, count)
    return [Powers(1.0, float(10 ** (-one / 10))) for one in db]


def test_sqnr_of_samples():
    """The SQNR is a ratio of sums; None without an error, or without a signal."""
    assert Powers(100.0, 1.0).db == pytest.approx(20)
    assert pooled_db([Powers(100.0, 1.0), Powers(0.0, 1.0)]) == pytest.approx(17, abs=0.02)
    for one in (Powers(1.0, 0.0), Powers(0.0, 1.0), Powers(math.inf, 1.0), Powers(1.0, math.nan)):
        assert one.db is None
    assert expected([Powers(1.0, 0.0)]) is expected([]) is None


def test_samples_that_agree():
    """The figure is inside the interval, whose width is then that of ``INTERVAL``."""
    low, high = expected(drawn(16, 0.0))
    assert low == pytest.approx(30 - INTERVAL.down_db)
    assert high == pytest.approx(30 + INTERVAL.up_db)


def test_more_samples_make_it_narrower():
    """Fewer samples, or a larger spread, widen it; so does a single sample."""

    def width(*arguments):
        low, high = expected(drawn(*arguments))
        return high - low

    assert width(64, 3.0) < width(8, 3.0) < width(8, 8.0)
    assert width(1, 0.0) > 2 * INTERVAL.unknown_db


@pytest.mark.parametrize("count", [8, 16])
def test_by_spread_alone_it_is_right_as_often_as_it_says(monkeypatch, count):
    """Four in five new sets of as many samples of the same kind are inside."""
    bare = interval.IntervalSettings(spread=0.9, down_db=0.0, up_db=0.0, tail_db=0.0)
    monkeypatch.setattr(interval, "INTERVAL", bare)
    inside = 0
    for seed in range(400):
        low, high = expected(drawn(count, 2.0, seed))
        inside += low <= pooled_db(drawn(count, 2.0, seed + 1000)) <= high
    assert 0.74 < inside / 400 < 0.88


def test_quantiles():
    """Quantiles equal those of tables of Student's t."""
    for freedom, probability, wanted in [(7, 0.9, 1.415), (15, 0.9, 1.341), (3, 0.8, 0.978)]:
        assert interval._quantile(probability, freedom + 1) == pytest.approx(wanted, rel=0.005)


def test_errors_of_few_samples():
    """The interval reaches further down if few samples make most of the error."""

    def reach(spread_db: float) -> float:
        sets = [drawn(8, spread_db, seed) for seed in range(20)]
        return sum(pooled_db(one) - expected(one)[0] for one in sets) / len(sets)

    assert reach(1.0) < INTERVAL.down_db + 2 < reach(10.0) - 1
    exact = [Powers(1.0, 0.0), *drawn(8, 1.0)]
    assert expected(exact)[0] >= pooled_db(exact) - INTERVAL.tail_db - INTERVAL.down_db


def test_outputs_that_saturate():
    """The interval reaches to the SQNR before saturation, and a sentence says so."""
    outputs, inner = drawn(8, 1.0, mean_db=67.0), drawn(8, 1.0, mean_db=33.0)
    low, high = expected(outputs, inner)
    assert low < 33 < 67 < high
    (text,) = sentences(outputs, inner)
    assert "before that the SQNR is 3" in text
    near = drawn(8, 1.0, mean_db=30.0)
    assert expected(near, inner) == expected(near)
    assert sentences(near, inner) == ()


def test_doubts():
    """Doubts lower only the lower end; too few samples give a sentence."""
    low, high = expected(drawn(8, 1.0))
    assert expected(drawn(8, 1.0), doubt_db=6.0) == (low - 6, high)
    assert "one sample" in sentences(drawn(1, 0.0))[0]
    assert str(MIN_SAMPLES - 1) in sentences(drawn(MIN_SAMPLES - 1, 0.0))[0]
    assert sentences(drawn(MIN_SAMPLES, 0.0)) == ()
