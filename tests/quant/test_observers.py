"""Statistics of activations and the ranges chosen from them."""

from __future__ import annotations

import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from npuconv.errors import CalibrationError
from npuconv.quant.observers import Method, Observer

METHODS: tuple[Method, ...] = ("minmax", "percentile", "entropy", "mse")
VALUES = hnp.arrays(
    np.float32,
    st.integers(1, 60),
    elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
)


def observe(*parts: object, bins: int = 512) -> Observer:
    """An observer that has seen the parts in this order."""
    observer = Observer("x", bins)
    for part in parts:
        observer.update(np.asarray(part))
    return observer


def state(observer: Observer) -> tuple[object, ...]:
    """Everything an observer knows."""
    counts, limit = observer.histogram
    extremes = (observer.minimum, observer.maximum, observer.count, observer.zeros)
    return (*extremes, counts.tolist(), limit)


@given(VALUES, VALUES)
def test_any_order_and_split_gives_the_same(a: np.ndarray, b: np.ndarray) -> None:
    """Two updates, their reverse, one update and a merge end in the same state."""
    whole = state(observe(np.concatenate([a, b])))
    merged, reverse = observe(a), observe(b)
    merged.merge(observe(b))
    reverse.merge(observe(a))
    assert state(observe(a, b)) == state(observe(b, a)) == whole
    assert state(merged) == state(reverse) == whole


@given(VALUES)
def test_counts_are_exact(values: np.ndarray) -> None:
    """Extremes are exact, and every value is in the histogram or among the zeros."""
    observer = observe(values)
    counts, limit = observer.histogram
    assert (observer.minimum, observer.maximum) == (values.min(), values.max())
    assert counts.sum() + observer.zeros == observer.count == values.size
    edges = np.linspace(-limit, limit, counts.size + 1)
    nonzero = values[values != 0].astype(np.float64)
    if nonzero.size:
        assert np.array_equal(np.histogram(nonzero, edges)[0], counts)


@settings(max_examples=40)
@given(VALUES)
def test_ranges_stay_within_the_exact_one(values: np.ndarray) -> None:
    """No method exceeds the exact range, and mse is at least as good as minmax."""
    observer = observe(values)
    exact = observer.absmax("minmax")
    assert exact == np.abs(values).max()
    assert all(0 <= observer.absmax(method) <= exact for method in METHODS)
    if exact > 0:
        assert observer.squared_error(observer.absmax("mse")) <= observer.squared_error(exact)


@given(VALUES, st.floats(0, 1))
def test_clip_fraction(values: np.ndarray, share: float) -> None:
    """The clipped share is right up to the values in the limit's own bin."""
    observer = observe(values)
    limit = share * float(np.abs(values).max())
    counts, reach = observer.histogram
    width = 2 * reach / counts.size
    magnitude = np.abs(values.astype(np.float64))
    above = np.mean(magnitude > limit + width)
    below = np.mean((magnitude > limit - width) & (magnitude > 0))
    assert above - 1e-9 <= observer.clip_fraction(limit) <= below + 1e-9


def test_memory_does_not_grow() -> None:
    """A thousand updates over twelve orders of magnitude take the memory of one."""
    rng = np.random.default_rng(0)
    observer = observe([1e-6])
    before = len(pickle.dumps(observer))
    for k in range(1000):
        observer.update(rng.normal(0, 10 ** (k / 80 - 6), 100))
    assert len(pickle.dumps(observer)) < before + 64


def test_mse_clips_a_long_tail() -> None:
    """A rare large value is clipped, and that lowers the true squared error."""
    rng = np.random.default_rng(0)
    values = np.append(rng.normal(0, 1, 100_000), 20.0)
    observer = observe(values, bins=4096)
    limit = observer.absmax("mse")
    true = [
        np.mean((values - np.clip(np.rint(values / s), -128, 127) * s) ** 2)
        for s in (limit / 127, 20 / 127)
    ]
    # The minimum of c^2 / (12 * 127^2) + (20 - c)^2 / 100001 is at 13.2.
    assert 12.5 < limit < 14
    assert true[0] < 0.75 * true[1]
    assert math.isclose(observer.squared_error(limit), true[0], rel_tol=0.05)


def test_mse_keeps_a_constant() -> None:
    """A tensor of one value is not clipped below it."""
    for value in (1.0, 0.7, -3.3):
        assert observe([value] * 10).absmax("mse") == pytest.approx(abs(value), rel=1e-6)


def test_percentile() -> None:
    """The percentile is that of the magnitudes other than 0, to within a bin."""
    values = np.concatenate([np.linspace(-100, 100, 20_001), np.zeros(10**6)])
    observer = observe(values, bins=4096)
    assert observer.absmax("percentile") == pytest.approx(99.99, abs=0.07)
    assert observer.absmax("percentile", percentile=50) == pytest.approx(50, abs=0.07)
    assert observer.absmax("percentile", percentile=100) == 100


def test_entropy_ignores_an_outlier_and_keeps_a_plain_shape() -> None:
    """One value far outside is given up; an even distribution is kept whole."""
    rng = np.random.default_rng(0)
    bulk = rng.normal(0, 1, 100_000)
    assert observe(np.append(bulk, 30.0), bins=4096).absmax("entropy") < 6
    assert observe(rng.uniform(-1, 1, 200_000), bins=4096).absmax("entropy") > 0.95


def test_entropy_of_few_bins_is_exact() -> None:
    """Where every bin has a level of its own nothing is clipped."""
    assert observe([0.25, 0.3], bins=16).absmax("entropy") == pytest.approx(0.3)
    assert observe([1.0] * 5, bins=4096).absmax("entropy") == 1.0


def test_positive_values_use_positive_levels() -> None:
    """For values in 0..a the error is that of 127 steps."""
    values = np.random.default_rng(0).uniform(0, 1, 50_000)
    observer = observe(values, bins=4096)
    assert observer.squared_error(1.0) == pytest.approx((1 / 127) ** 2 / 12, rel=0.1)


@pytest.mark.parametrize("method", METHODS)
def test_only_zeros(method: Method) -> None:
    """A tensor of zeros has the range 0 and no error."""
    observer = observe(np.zeros((2, 3)))
    assert observer.absmax(method) == 0
    assert observer.clip_fraction(0.5) == observer.squared_error(1.0) == 0


@pytest.mark.parametrize("method", METHODS)
def test_range_given_without_values(method: Method) -> None:
    """Extremes from elsewhere are kept when no values come."""
    observer = Observer("x")
    observer.update_range(-3, 2)
    assert (observer.minimum, observer.maximum, observer.count) == (-3, 2, 0)
    assert observer.absmax(method) == 3


def test_range_beyond_the_values_seen() -> None:
    """With a sub-sample in the histogram the exact range still bounds every method."""
    observer = observe(np.random.default_rng(0).normal(0, 1, 10_000))
    observer.update_range(-8, 8)
    assert observer.absmax() == 8
    assert all(1 < observer.absmax(method) <= 8 for method in METHODS)
    assert observer.clip_fraction(7.9) == 0


def test_not_finite_is_counted_and_named() -> None:
    """Infinity, NaN and what float32 cannot hold are refused, and nothing is added."""
    observer = Observer("conv1_out")
    with pytest.raises(CalibrationError, match=r"'conv1_out': 3 of 4 values are not finite"):
        observer.update([1.0, np.nan, np.inf, 1e300])
    with pytest.raises(CalibrationError, match="not finite"):
        observer.update_range(0, np.inf)
    observer.update([])
    with pytest.raises(CalibrationError, match=r"'conv1_out': no values were observed"):
        observer.absmax()


def test_misuse() -> None:
    """Wrong arguments are refused."""
    with pytest.raises(ValueError, match="multiple of 4"):
        Observer("x", 6)
    with pytest.raises(ValueError, match="upside down"):
        Observer("x").update_range(1, 0)
    with pytest.raises(ValueError, match="different numbers"):
        Observer("x", 8).merge(Observer("x", 16))
    with pytest.raises(KeyError):
        observe([1.0]).absmax("median")  # type: ignore[arg-type]


def test_same_values_give_the_same_ranges() -> None:
    """Ranges do not depend on the order in which samples come."""
    parts = np.random.default_rng(1).normal(0, [[1], [5], [0.1]], (3, 500))
    found = {
        tuple(observe(*order).absmax(method) for method in METHODS)
        for order in itertools.permutations(parts)
    }
    assert len(found) == 1
