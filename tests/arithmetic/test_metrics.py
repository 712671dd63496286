"""Errors between tensors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from npuconv.arithmetic.metrics import ErrorStats
from npuconv.errors import ModelError

ARRAYS = hnp.arrays(np.float32, (4, 3), elements=st.floats(-1e3, 1e3, width=32))


def stats(*pairs: tuple[object, object]) -> ErrorStats:
    """Statistics over pairs of reference and other."""
    result = ErrorStats()
    for f, q in pairs:
        result.accumulate(np.asarray(f), np.asarray(q))
    return result


def test_sqnr_of_a_known_error() -> None:
    """A tenth of the amplitude as error is 20 dB."""
    assert stats(([10.0, -10.0], [11.0, -9.0])).sqnr_db == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("reference", "other", "expected"),
    [
        ([1.0, 2.0], [1.0, 2.0], math.inf),
        ([0.0], [0.0], math.inf),
        ([0.0], [1.0], None),
        ([1.0], [np.nan], -math.inf),
        ([1.0], [np.inf], -math.inf),
        ([np.nan], [1.0], None),
        ([np.inf], [np.inf], None),
    ],
)
def test_sqnr_at_the_edges(
    reference: list[float], other: list[float], expected: float | None
) -> None:
    """Exact, silent and broken tensors have answers of their own."""
    assert stats((reference, other)).sqnr_db == expected


@given(ARRAYS, ARRAYS)
def test_streaming_equals_whole(f: np.ndarray, q: np.ndarray) -> None:
    """Row by row gives what the whole gives."""
    rows, whole = stats(*zip(f, q, strict=True)), stats((f, q))
    for name in ("sqnr_db", "cosine", "top1_agreement"):
        one, other = getattr(rows, name), getattr(whole, name)
        assert one == other or one == pytest.approx(other, rel=1e-9)


def test_cosine() -> None:
    """The cosine is 1 for the same direction, 0 for a right angle, None for no direction."""
    assert stats(([1.0, 2.0], [2.0, 4.0])).cosine == pytest.approx(1.0)
    assert stats(([1.0, 0.0], [0.0, 1.0])).cosine == 0.0
    assert stats(([0.0], [1.0])).cosine is None
    assert stats(([1.0], [np.inf])).cosine is None


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1, 1)])
def test_top1_class_axis(shape: tuple[int, ...]) -> None:
    """Axes of a map that is one cell are not the class axis."""
    f = np.array([[1, 2, 3], [3, 2, 1]], np.float32).reshape(shape)
    q = np.array([[1, 3, 2], [3, 2, 1]], np.float32).reshape(shape)
    assert stats((f, q)).top1_agreement == 0.5


def test_top1_of_vectors_and_of_maps_with_known_classes() -> None:
    """Every position on its own; nobody knows which axis of a map has the classes."""
    f = np.arange(24.0).reshape(1, 2, 3, 4)
    assert stats((f, f)).top1_agreement is None
    assert stats((np.arange(3), np.arange(3)[::-1])).top1_agreement == 0.0
    known = ErrorStats(class_axis=1)
    known.accumulate(f, np.where(f == 12, 0, f) * np.where(f < 12, 1, -1) + 12.0 * (f == 16))
    assert known.top1_agreement == pytest.approx(0.0)
    known.accumulate(f, f)
    assert known.top1_agreement == pytest.approx(0.5)


def test_an_axis_that_is_not_there() -> None:
    """An output that has not always the rank of the model's text has no top-1."""
    known = ErrorStats(class_axis=3)
    known.accumulate(np.ones((2, 3)), np.ones((2, 3)))
    assert known.top1_agreement is None


@pytest.mark.parametrize("shape", [(), (1,), (5, 1), (1, 1, 1, 1), (0, 4), (1, 9, 1)])
def test_top1_does_not_apply(shape: tuple[int, ...]) -> None:
    """One class or none has no top-1: in [1,9,1] the 9 are boxes as likely as classes."""
    assert stats((np.ones(shape), np.ones(shape))).top1_agreement is None


def test_without_samples() -> None:
    """Metrics of no samples are empty."""
    empty = ErrorStats()
    assert (empty.sqnr_db, empty.cosine, empty.top1_agreement) == (None, None, None)


def test_shape_of_the_reference_rules() -> None:
    """The same size in another shape is compared, another size is refused."""
    assert stats((np.ones((1, 4)), np.ones((2, 2)))).sqnr_db == math.inf
    with pytest.raises(ModelError, match="cannot be compared"):
        stats((np.ones(3), np.ones(4)))
