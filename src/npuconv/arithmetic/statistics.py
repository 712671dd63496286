"""Statistics of one tensor by channel, in memory that does not grow with the samples."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.whole import ceil_div
from npuconv.records import dataclass

POSITIONS = 1024  # positions of a tensor that are kept at most
VALUES = 2**20  # values of a tensor that are kept at most, all channels together
# Golden ratio: any number of its multiples, modulo 1, fills the unit interval evenly.
_GOLDEN = 0.6180339887498949
_LARGEST = np.finfo(np.float32).max

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


@dataclass
class Statistics:
    """Statistics of one tensor, channel by channel.

    Extremes are of all values. ``values`` is a subset: the same positions in every channel,
    spread over the tensor, and up to the same number of every sample. When even one position of
    each sample is too many, every second sample has some, then every fourth.
    """

    axis: int | None  # its channel axis; None: one channel, everything together
    lows: Floats  # float32 [C], exact minimum
    highs: Floats  # float32 [C], exact maximum
    values: Floats  # float32 [C, P], P at most ``capacity(C)``
    samples: int  # number of samples
    count: int  # values per channel
    second_lows: Floats  # float32 [C], second smallest of the minima of samples, or the largest
    second_highs: Floats  # float32 [C], second largest of the maxima of samples, or the lowest

    @property
    def channels(self) -> int:
        """Number of channels, C."""
        return int(self.lows.size)

    @property
    def means(self) -> Doubles:
        """Mean of ``values``, float64 [C]; 0 without any."""
        if not self.values.size:
            return np.zeros(self.channels)
        return np.asarray(np.mean(self.values, axis=1, dtype=np.float64))

    @property
    def variances(self) -> Doubles:
        """Variance of ``values``, float64 [C]; 0 without any."""
        if not self.values.size:
            return np.zeros(self.channels)
        return np.asarray(np.var(self.values, axis=1, dtype=np.float64))


@dataclass(frozen=True)
class Observation:
    """Statistics of a tensor on one sample."""

    lows: Floats  # float32 [C]; inf where the tensor has no values
    highs: Floats  # float32 [C]; -inf where the tensor has no values
    values: Floats  # float32 [C, P], values at positions that are spread over the tensor
    count: int  # values per channel

    @property
    def is_finite(self) -> bool:
        """True if no value is NaN or infinite."""
        return not self.count or (
            math.isfinite(self.lows.min()) and math.isfinite(self.highs.max())
        )


def observe(array: NDArray[np.generic], axis: int | None, number: int, samples: int) -> Observation:
    """Return the statistics of a tensor on sample ``number`` of ``samples``.

    Each sample contributes equally many values, every n-th along the axes before and after the
    channels; the number of the sample decides at which value to start.
    """
    dims = array.shape
    outer, channels, inner = 1, 1, array.size
    if axis is not None:
        axis %= max(len(dims), 1)
        outer, channels, inner = math.prod(dims[:axis]), dims[axis], math.prod(dims[axis + 1 :])
    blocks = np.asarray(array, np.float32).reshape(outer, channels, inner)
    # Every n-th sample contributes values, a power of two; mostly 1.
    interval = 1 << (ceil_div(samples, capacity(channels)) - 1).bit_length()
    most = quota(channels, ceil_div(samples, interval))
    outer_count = max(min(outer, most), 1)
    counts = outer_count, max(min(inner, most // outer_count), 1)
    # Odd steps do not stay in one column of an image.
    steps = [ceil_div(extent, n) | 1 for extent, n in zip((outer, inner), counts, strict=True)]
    starts = [int(number * _GOLDEN % 1 * step) for step in steps]
    first, second = (
        min(start, max(extent - 1, 0)) for start, extent in zip(starts, (outer, inner), strict=True)
    )
    picked = blocks[first :: steps[0], :, second :: steps[1]]
    values = picked.transpose(1, 0, 2).reshape(channels, picked.shape[0] * picked.shape[2])
    values = values[:, : 0 if number % interval else None]
    lows, highs = blocks.min((0, 2), initial=np.inf), blocks.max((0, 2), initial=-np.inf)
    return Observation(lows, highs, np.array(values), outer * inner)


class Accumulator:
    """Statistics of the samples that were added so far."""

    def __init__(self, channels: int) -> None:
        self.lows, self.second_lows = (np.full(channels, n, np.float32) for n in (np.inf, _LARGEST))
        self.highs, self.second_highs = -self.lows, -self.second_lows
        self._values = list[Floats]()
        self.samples = self.count = 0

    def add(self, sample: Observation) -> None:
        """Add the next sample."""
        self.second_lows = np.minimum(self.second_lows, np.maximum(self.lows, sample.lows))
        self.second_highs = np.maximum(self.second_highs, np.minimum(self.highs, sample.highs))
        self.lows = np.minimum(self.lows, sample.lows)
        self.highs = np.maximum(self.highs, sample.highs)
        self._values.append(sample.values)
        self.samples, self.count = self.samples + 1, self.count + sample.count

    def statistics(self, axis: int | None) -> Statistics:
        """Return the statistics of a tensor; channels without values get 0."""
        nothing = np.zeros_like(self.lows)
        lows, highs = (x if self.count else nothing for x in (self.lows, self.highs))
        values = np.concatenate(self._values, axis=1)
        return Statistics(
            axis, lows, highs, values,
            self.samples, self.count, self.second_lows, self.second_highs,
        )  # fmt: skip


def capacity(channels: int) -> int:
    """Return the most positions that are kept of a tensor with so many channels."""
    return max(1, min(POSITIONS, VALUES // max(channels, 1)))


def quota(channels: int, samples: int) -> int:
    """Return the most positions that are kept of each of so many samples."""
    return max(1, capacity(channels) // max(samples, 1))
