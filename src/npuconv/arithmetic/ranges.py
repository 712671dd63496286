"""Clipping limits of a tensor, searched on the histogram of its magnitudes.

A histogram here is counts [B] and the bin width: bin k holds magnitudes around
``(k + 0.5) * width``. Zeros are not in it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

# Positive levels of int8 with zero point 0, zero included.
_LEVELS = 128
# The divergence changes little from one bin to the next, and each evaluation costs a pass.
_STRIDE = 8


def percentile_limit(counts: Counts, width: float, percentile: float) -> float:
    """Magnitude that ``percentile`` (0..100) of the values do not exceed, linear within a bin."""
    wanted = int(counts.sum()) * min(percentile / 100, 1.0)
    sums = np.cumsum(counts)
    last = int(np.searchsorted(sums, wanted))
    before = int(sums[last]) - int(counts[last])
    return (last + (wanted - before) / max(int(counts[last]), 1)) * width


def entropy_limit(counts: Counts, width: float) -> float:
    """Magnitude under which 128 levels keep the distribution best; the widest of equals.

    The search of TensorRT (S. Migacz, "8-bit inference with TensorRT", 2017): for each limit
    the clipped histogram P, with the outliers in its last bin, is compared with its 128-level
    version Q by the Kullback-Leibler divergence ``sum p log(p / q)``.
    """
    used = int(np.flatnonzero(counts)[-1]) + 1
    stops: list[int] = [used, *range(used - _STRIDE, _LEVELS - 1, -_STRIDE)]
    scores = [_divergence(counts, stop) for stop in stops]
    return stops[int(np.argmin(scores))] * width


def _divergence(counts: Counts, stop: int) -> float:
    kept = counts[:stop].astype(np.float64)
    p = kept.copy()
    p[-1] += counts[stop:].sum()
    live = p > 0
    level = np.arange(stop) * _LEVELS // stop
    share = np.bincount(level, kept) / np.maximum(np.bincount(level, live), 1)
    q = np.where(live, share[level], 0.0)
    if np.any(q[live] == 0):
        return math.inf
    p, q = p[live] / p.sum(), q[live] / q.sum()
    return float(np.sum(p * np.log(p / q)))
