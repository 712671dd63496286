"""Channels of weights that a few large ones rule over."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

POOR_DB = 36.0  # rounding leaves 40 and more where nothing stands out
FEW = 0.01  # share of the weights of a channel that may be outliers
_HIGHEST = 127


@dataclass(frozen=True)
class Outliers:
    """Outliers in the weights of one layer.

    Attributes:
        rows: output channels with outliers.
        times: largest magnitude over rms, in the worst of them.
        sqnr_db: of the weights after rounding, in the worst of them.
    """

    rows: int
    times: float
    sqnr_db: float


def find_outliers(
    weight: NDArray[np.floating], steps: int, *, per_tensor: bool = False
) -> Outliers | None:
    """Channels of which all but a few weights round to ``-steps..steps``.

    Args:
        weight: float [M,...].
        steps: see above, of 127.
        per_tensor: whether all channels have one scale.
    """
    rows = np.abs(weight.reshape(1 if per_tensor else weight.shape[0], -1)).astype(np.float32)
    most = rows.max(axis=1)
    if rows.shape[1] * FEW < 1 or not np.isfinite(most).all():
        return None
    power = np.einsum("ij,ij->i", rows, rows, dtype=np.float64) / rows.shape[1]
    bound = (steps + 0.5) / _HIGHEST
    # Only such channels can qualify, and they are rare: no need to sort or round all others.
    suspects = np.flatnonzero((most > 0) & (power <= (bound**2 + FEW) * most.astype(float) ** 2))
    bad = [k for k in suspects if _few_left(rows[k], bound * most[k])]
    ratios = {k: _sqnr_db(rows[k] / most[k] * _HIGHEST) for k in bad}
    hurt = [k for k, ratio in ratios.items() if ratio < POOR_DB]
    if not hurt:
        return None
    times = float((most[hurt] / np.sqrt(power[hurt])).max())
    count = weight.shape[0] if per_tensor else len(hurt)
    return Outliers(count, times, min(ratios[k] for k in hurt))


def _sqnr_db(scaled: NDArray[np.float32]) -> float:
    """Return the SQNR, in dB, of rounding weights whose step is 1."""
    noise = float(np.sum((scaled - np.rint(scaled)) ** 2))
    return 10 * math.log10(float(np.sum(scaled**2)) / noise) if noise else math.inf


def _few_left(row: NDArray[np.float32], bound: float) -> bool:
    """Return whether nearly all weights but the zeros, which lose nothing, are within the bound."""
    return bool(np.count_nonzero(row > bound) <= FEW * np.count_nonzero(row))
