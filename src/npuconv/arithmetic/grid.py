"""Channels whose values are whole steps apart, such as normalized pixels.

With the step as its scale, int8 holds such a channel without any loss, if it takes no more
than 256 steps and 0 is among them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Doubles = NDArray[np.float64]

_STEPS = 255  # between 256 levels
_FEWEST_VALUES = 8  # different values; fewer may be whole steps apart by chance
_TOLERANCE = 0.02  # largest error of float arithmetic, as a share of a step


@dataclass(frozen=True)
class Grid:
    """Grid of the values of every channel: ``offset + step * k`` with integer k."""

    steps: Doubles  # float64 [C]; 0 where a channel is on no grid
    offsets: Doubles  # float64 [C], the value of the grid next to 0, half a step at most

    @property
    def is_aligned(self) -> bool:
        """True if 0 is on the grid of every channel."""
        return bool(np.all(np.abs(self.offsets) <= _TOLERANCE / 2 * self.steps))


def find(values: ArrayLike) -> Grid:
    """Return the grid of every channel.

    Args:
        values: finite, [C,P].
    """
    grids = [_of_channel(np.unique(np.asarray(row, np.float64))) for row in np.asarray(values)]
    return Grid(np.asarray([step for step, _ in grids]), np.asarray([off for _, off in grids]))


def are_multiples(values: ArrayLike, steps: Doubles, fill: ArrayLike) -> NDArray[np.bool_]:
    """Return, for each channel, whether all values are multiples of its step.

    Args:
        values: finite, [C,P].
        steps: step of every channel [C]; where it is 0, the result is False.
        fill: a value [C] that may also occur: the value that a Pad inserts.
    """
    rows = np.asarray(values, np.float64)
    safe = np.where(steps > 0, steps, 1.0)[:, None]
    padding = np.asarray(fill, np.float64)[:, None]
    near = np.abs(rows / safe - np.rint(rows / safe)) <= 2 * _TOLERANCE
    near |= np.abs(rows - padding) <= _TOLERANCE * safe
    return np.asarray((steps > 0) & near.all(axis=1))


def covering(low: float, high: float, step: float) -> tuple[float, float] | None:
    """Return a range of 256 levels that contains a grid, with the spare levels on both sides.

    Args:
        low: smallest value.
        high: largest value.
        step: step of the grid, above 0.

    Returns:
        Lowest and highest level; None where the grid has more than 256 levels.
    """
    first, last = round(min(low, 0.0) / step), round(max(high, 0.0) / step)
    if not 0 < last - first <= _STEPS:
        return None
    finer = _STEPS // (last - first)  # levels of a step, so that more values may come between
    spare = _STEPS - (last - first) * finer
    below = 0 if first == 0 else spare if last == 0 else spare // 2
    start = first * finer - below
    return start * step / finer, (start + _STEPS) * step / finer


def _of_channel(values: Doubles) -> tuple[float, float]:
    """Return step and offset for the sorted values of a channel; 0 where there is no grid.

    Values much closer together than 256 levels of the range are one value with rounding noise.
    """
    span = float(values[-1]) - float(values[0]) if len(values) else 0.0
    if not (np.isfinite(span) and span > 0):
        return 0.0, 0.0
    gaps = np.diff(values)
    real_gaps = gaps[gaps > _TOLERANCE * span / _STEPS]
    count = round(span / float(real_gaps.min())) if len(real_gaps) + 1 >= _FEWEST_VALUES else 0
    if not 0 < count <= _STEPS:
        return 0.0, 0.0
    step = span / count
    multiples = (values - values[0]) / step
    if np.abs(multiples - np.rint(multiples)).max() > _TOLERANCE:
        return 0.0, 0.0
    return step, float(values[0] - step * np.rint(values[0] / step))
