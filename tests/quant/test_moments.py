"""Moments of windows."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.quant.moments import BLOCK, KEPT, Moments


def windows(groups: int = 2, length: int = 5, count: int = 40, seed: int = 0) -> np.ndarray:
    """Values with a mean that is not 0."""
    rng = np.random.default_rng(seed)
    return rng.normal(1.5, 2.0, (groups, length, count)).astype(np.float32)


def test_means_and_products_are_those_of_all_windows() -> None:
    """However they were split into parts; means in double, products uncentred."""
    seen = windows()
    moments = Moments(2, 5)
    for part in np.split(seen, [7, 30], axis=2):
        moments.add(part)
    assert moments.count == 40
    assert np.allclose(moments.means, seen.mean(axis=2))
    assert np.allclose(moments.products(0), seen @ seen.transpose(0, 2, 1) / 40, rtol=1e-4)


@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_huge_and_tiny_values(size: float) -> None:
    """Their squares fit into float32 in a unit of their own."""
    seen = windows()
    moments = Moments(2, 5)
    moments.add(seen * np.float32(size))
    wanted = (seen @ seen.transpose(0, 2, 1) / 40).astype(np.float64) * float(size) ** 2
    assert np.allclose(moments.products(0) / float(size) ** 2, wanted / float(size) ** 2, rtol=1e-3)


def test_some_are_kept_apart() -> None:
    """They are not among the moments; the very first windows always are."""
    moments = Moments(2, 5)
    moments.add(windows(seed=1), apart=True)
    assert moments.apart is None
    moments.add(windows(seed=2), apart=True)
    assert moments.count == 40
    assert moments.apart.shape[:2] == (2, 5)
    assert np.array_equal(moments.apart[:, :, 0], windows(seed=2)[:, :, 0])
    assert np.allclose(moments.means, windows(seed=1).mean(axis=2))


def test_what_is_kept_apart_is_spread_and_bounded() -> None:
    """A quarter of the room for each sample, from all over it."""
    moments = Moments(1, 1)
    moments.add(np.zeros((1, 1, 3), np.float32))
    moments.add(np.arange(10_000, dtype=np.float32).reshape(1, 1, -1), apart=True)
    kept = moments.apart.reshape(-1)
    assert len(kept) == KEPT // 4
    assert kept[-1] > 9000


def test_long_windows_are_cut_into_equal_blocks() -> None:
    """Products of different blocks are not kept."""
    moments = Moments(1, BLOCK + 100)
    assert [b.stop - b.start for b in moments.blocks] == [(BLOCK + 100) // 2] * 2
    seen = windows(1, BLOCK + 100, 3)
    moments.add(seen)
    last = seen[:, moments.blocks[1]]
    assert np.allclose(moments.products(1), last @ last.transpose(0, 2, 1) / 3, atol=1e-4)
    assert sum(b.stop - b.start for b in Moments(1, 2500).blocks) == 2500


def test_nothing_seen() -> None:
    """Zeros, not a division by zero."""
    moments = Moments(1, 2)
    assert not moments.means.any()
    assert not moments.products(0).any()


def test_groups_that_are_taken_are_those_that_were_seen() -> None:
    """In any order, and more than once; what was kept apart as well."""
    windows = np.random.default_rng(0).standard_normal((3, 4, 50)).astype(np.float32)
    seen = Moments(3, 4)
    seen.add(windows)
    seen.add(windows + 1, apart=True)
    taken, alone = seen.take([2, 0, 2]), Moments(3, 4)
    alone.add(windows[[2, 0, 2]])
    assert (taken.groups, taken.count) == (3, 50)
    np.testing.assert_allclose(taken.means, alone.means)
    np.testing.assert_allclose(taken.products(0), alone.products(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(taken.apart, seen.apart[[2, 0, 2]])
