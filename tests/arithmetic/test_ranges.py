"""Where a histogram is clipped."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.arithmetic.ranges import entropy_limit, percentile_limit


def histogram(values: np.ndarray, bins: int = 2048) -> tuple[np.ndarray, float]:
    """Of magnitudes other than 0, up to the largest."""
    magnitudes = np.abs(values[values != 0])
    counts, _ = np.histogram(magnitudes, bins, (0, magnitudes.max()))
    return counts, float(magnitudes.max()) / bins


@pytest.mark.parametrize(("percentile", "limit"), [(99.99, 99.99), (50, 50), (100, 100)])
def test_percentile(percentile: float, limit: float) -> None:
    """To within a bin."""
    counts, width = histogram(np.linspace(-100, 100, 20_001))
    assert percentile_limit(counts, width, percentile) == pytest.approx(limit, abs=0.07)


def test_a_percentile_within_a_bin_is_linear() -> None:
    """Half of what is in the bin."""
    assert percentile_limit(np.asarray([0, 4]), 1.0, 50) == 1.5


def test_entropy_ignores_an_outlier_and_keeps_a_plain_shape() -> None:
    """One value far outside is given up; an even distribution is kept whole."""
    rng = np.random.default_rng(0)
    bulk = rng.normal(0, 1, 100_000)
    assert entropy_limit(*histogram(np.append(bulk, 30.0))) < 6
    assert entropy_limit(*histogram(rng.uniform(-1, 1, 200_000))) > 0.95


def test_entropy_of_few_bins_is_exact() -> None:
    """Where every bin has a level of its own nothing is clipped."""
    assert entropy_limit(np.asarray([0, 1, 0, 3]), 0.25) == 1.0
