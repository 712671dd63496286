"""Interval of the SQNR on new samples."""

from __future__ import annotations

import math

import numpy as np
import pytest

from npuconv.evaluate import interval
from npuconv.evaluate.interval import MIN_SAMPLES, Powers, expected, pooled_db, sentences


def drawn(count: int, spread_db: float, seed: int = 0, mean_db: float = 30.0) -> list[Powers]:
    """Return samples whose SQNR has this spread."""
    db = np.random.default_rng(seed).normal(mean_db, spread_db, count)
    return [Powers(1.0, float(10 ** (-one / 10))) for one in db]


def width(powers: list[Powers]) -> float:
    """Return the width of the interval, dB."""
    low, high = expected(powers)
    return high - low


def test_sqnr_of_samples():
    """The SQNR is a ratio of sums; None without an error, or without a signal."""
    assert Powers(100.0, 1.0).db == pytest.approx(20)
    assert pooled_db([Powers(100.0, 1.0), Powers(0.0, 1.0)]) == pytest.approx(17, abs=0.02)
    for one in (Powers(1.0, 0.0), Powers(0.0, 1.0), Powers(math.inf, 1.0), Powers(1.0, math.nan)):
        assert one.db is None
    assert expected([Powers(1.0, 0.0)]) is expected([]) is None


def test_samples_that_agree():
    """The interval of many samples that agree is as wide as models differ, around the usual."""
    low, high = expected(drawn(1000, 0.0))
    assert low == pytest.approx(30 - interval.WORSE_DB - interval.OTHER_DB, abs=0.01)
    assert high == pytest.approx(30 - interval.WORSE_DB + interval.OTHER_DB, abs=0.01)


def test_more_samples_make_it_narrower():
    """Fewer samples, or a larger spread, widen it; a single sample shows no spread at all."""
    assert width(drawn(64, 3.0)) < width(drawn(8, 3.0)) < width(drawn(8, 8.0))
    assert width(drawn(64, 0.0)) < width(drawn(8, 0.0)) < width(drawn(3, 0.0))
    assert width(drawn(3, 0.0)) < width(drawn(1, 0.0))
    assert width(drawn(1, 0.0)) > 2 * interval.ALONE_DB


@pytest.mark.parametrize("count", [8, 16])
def test_by_spread_alone_it_is_right_as_often_as_it_says(monkeypatch, count):
    """Four in five new sets of as many samples of the same kind are inside."""
    settings = {"SPREAD": 0.9, "WORSE_DB": 0.0, "OTHER_DB": 0.0, "ALONE_DB": 3.0}
    for name, value in settings.items():
        monkeypatch.setattr(interval, name, value)
    inside = 0
    for seed in range(400):
        low, high = expected(drawn(count, 2.0, seed))
        inside += low <= pooled_db(drawn(count, 2.0, seed + 1000)) <= high
    assert 0.74 < inside / 400 < 0.88


def test_quantiles():
    """Quantiles equal those of tables of Student's t."""
    for freedom, probability, wanted in [(7, 0.9, 1.415), (15, 0.9, 1.341), (3, 0.8, 0.978)]:
        assert interval._quantile(probability, freedom) == pytest.approx(wanted, rel=0.005)


@pytest.mark.parametrize(
    "one", [Powers(1.0, 1.0), Powers(1e4, 1.0)], ids=["most of the error", "most of both"]
)
def test_one_sample_that_decides(one):
    """One sample that makes nearly all of the error widens it, also where it makes the signal."""
    even = drawn(7, 1.0)
    assert width([*even, one]) > 2 * width([*even, Powers(1.0, 1e-3)])
    assert width([*even, one]) < 4 * interval.ALONE_DB


def test_samples_without_error():
    """An exact sample, or a single one that is not, gives finite ends."""
    for powers in ([Powers(1.0, 0.0), *drawn(7, 1.0)], [Powers(1.0, 0.0)] * 7 + drawn(1, 0.0)):
        assert all(map(math.isfinite, expected(powers)))


def test_outputs_that_saturate():
    """The interval holds the SQNR before saturation if few samples show an error; it is said."""
    outputs, inner = drawn(8, 15.0, mean_db=67.0), drawn(8, 1.0, mean_db=33.0)
    assert expected(outputs, inner) == (expected(inner)[0], expected(outputs)[1])
    (text,) = sentences(outputs, inner)
    assert "before that the SQNR is 3" in text
    assert expected(outputs, [Powers(1.0, 0.0)] * 8) == expected(outputs)


def test_outputs_that_err_alike():
    """Saturation hides nothing if all samples err alike, however far the SQNR before it is."""
    outputs, inner = drawn(8, 1.0, mean_db=67.0), drawn(8, 1.0, mean_db=33.0)
    assert expected(outputs, inner) == expected(outputs)
    assert sentences(outputs, inner) == ()


def test_doubts():
    """Doubts lower only the lower end; too few samples give a sentence."""
    low, high = expected(drawn(8, 1.0))
    assert expected(drawn(8, 1.0), doubt_db=6.0) == (low - 6, high)
    assert "one sample" in sentences(drawn(1, 0.0))[0]
    assert str(MIN_SAMPLES - 1) in sentences(drawn(MIN_SAMPLES - 1, 0.0))[0]
    assert sentences(drawn(MIN_SAMPLES, 0.0)) == ()
