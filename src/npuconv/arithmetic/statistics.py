"""Statistics of one tensor by channel, in memory that does not grow with the samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

POSITIONS = 1024  # positions of a tensor that are kept at most
VALUES = 2**20  # values of a tensor that are kept at most, all channels together

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]


class Kept(NamedTuple):
    """Values of some samples: float32 [C, P], their numbers, and how many each has."""

    values: Floats
    numbers: Integers
    widths: Integers


@dataclass
class Statistics:
    """Statistics of one tensor, channel by channel.

    Extremes and means are of all values. ``values`` is a subset: the same positions in
    every channel, and up to the same number of every sample. The positions of a sample are
    in an order of which every prefix is spread over the tensor; the more samples there are,
    the shorter the prefix that is kept. When even one position of each sample is too many,
    every second sample is kept, then every fourth. So the subset depends on the number of
    samples, not on how they were split into parts.
    """

    name: str
    axis: int | None  # its channel axis; None: one channel, everything together
    lows: Floats  # float32 [C], exact minimum
    highs: Floats  # float32 [C], exact maximum
    means: Doubles  # float64 [C], mean
    # float64 [C], mean of squares; of the values that are kept, where a model is run.
    squares: Doubles
    values: Floats  # float32 [C, P], P at most ``capacity(C)``
    samples: int
    count: int  # values per channel
    first: int = 0  # number of the first sample, for parts that are to be joined
    # float32 [C], the next to smallest of the minima of samples, beyond all values where there was
    # one sample; by default the minimum.
    second_lows: Floats = field(default_factory=lambda: np.zeros(0, np.float32))
    # float32 [C], the next to largest of their maxima, below all values where there was one sample;
    # by default the maximum.
    second_highs: Floats = field(default_factory=lambda: np.zeros(0, np.float32))
    # int64, the samples whose values are there; by default the first.
    numbers: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    # int64, how many of the P positions each of them has; by default all.
    widths: Integers = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        """Attribute values without sample numbers to the first sample."""
        if not self.second_highs.size:
            self.second_lows, self.second_highs = self.lows, self.highs
        if not self.numbers.size and self.values.size:
            self.numbers = np.asarray([self.first], np.int64)
            self.widths = np.asarray([self.values.shape[1]], np.int64)

    @property
    def channels(self) -> int:
        """Number of channels, C."""
        return int(self.lows.size)

    @property
    def stored_values(self) -> Kept:
        """Stored values, with the samples they are of."""
        return Kept(self.values, self.numbers, self.widths)

    @property
    def variances(self) -> Doubles:
        """Variance of all values, float64 [C]."""
        return np.maximum(self.squares - self.means**2, 0.0)


def join(parts: Sequence[Statistics]) -> Statistics:
    """Return the statistics of adjacent parts together; moments differ in the last bit at most.

    Args:
        parts: in the order of their samples.

    Raises:
        ValueError: they are of different tensors, or not adjacent.
    """
    for before, after in pairwise(parts):
        tensors = {(part.name, part.axis, part.channels) for part in (before, after)}
        if len(tensors) > 1 or before.first + before.samples != after.first:
            raise ValueError(f"tensor {before.name!r}: these parts do not belong together")
    samples = sum(part.samples for part in parts)
    count = sum(part.count for part in parts)
    shares = [part.count / max(count, 1) for part in parts]
    thinned = thin([part.stored_values for part in parts], samples)
    return Statistics(
        name=parts[0].name,
        axis=parts[0].axis,
        lows=np.min([part.lows for part in parts], axis=0),
        highs=np.max([part.highs for part in parts], axis=0),
        second_lows=-_second([-p.lows for p in parts], [-p.second_lows for p in parts]),
        second_highs=_second([p.highs for p in parts], [p.second_highs for p in parts]),
        means=np.asarray(shares) @ [part.means for part in parts],
        squares=np.asarray(shares) @ [part.squares for part in parts],
        values=thinned.values,
        samples=samples,
        count=count,
        first=parts[0].first,
        numbers=thinned.numbers,
        widths=thinned.widths,
    )


def _second(largest: Sequence[Floats], seconds: Sequence[Floats]) -> Floats:
    """Return the second largest value, from the largest and second largest of each part."""
    return np.asarray(np.sort([*largest, *seconds], axis=0)[-2], np.float32)


def capacity(channels: int) -> int:
    """Return the most positions that are kept of a tensor with so many channels."""
    return max(1, min(POSITIONS, VALUES // max(channels, 1)))


def quota(channels: int, samples: int) -> int:
    """Return the most positions that are kept of each of so many samples."""
    return max(1, capacity(channels) // max(samples, 1))


def thin(blocks: Sequence[Kept], samples: int) -> Kept:
    """Reduce the stored values of adjacent samples to the capacity for ``samples`` samples."""
    values = np.concatenate([block.values for block in blocks], axis=1)
    numbers = np.concatenate([block.numbers for block in blocks])
    widths = np.concatenate([block.widths for block in blocks])
    # Interval of kept samples, a power of two, so that fewer are among more.
    step = 1 << max((-(-samples // capacity(len(values))) - 1).bit_length(), 0)
    per_sample = quota(len(values), -(-samples // step))
    new_widths = np.where(numbers % step == 0, np.minimum(widths, per_sample), 0)
    if np.array_equal(new_widths, widths):
        return Kept(values, numbers, widths)
    place = np.arange(values.shape[1]) - np.repeat(np.cumsum(widths) - widths, widths)
    in_use = new_widths > 0
    values = values[:, place < np.repeat(new_widths, widths)]
    return Kept(values, numbers[in_use], new_widths[in_use])


@cache
def spread_order(length: int) -> Integers:
    """Return 0..length-1 in bit-reversed order; every prefix is spread evenly."""
    bits = max(length - 1, 0).bit_length()
    order = np.zeros(1, np.int64)
    for _ in range(bits):
        order = np.concatenate([2 * order, 2 * order + 1])
    return order[order < length]
