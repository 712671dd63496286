"""How the tensors of one run lie: their shapes, and which of their values are taken."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from npuconv.arithmetic.statistics import Floats, Integers, Kept, quota, spread_order

# Multiples of it, modulo 1, fill the unit interval evenly, however many there are.
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class Layout:
    """Tensors as [samples, before, channels, behind]: what is before and behind the channels.

    Attributes:
        samples: how many are stacked.
        before: int64 [T], extent of what is before the channel axis, per sample.
        channels: int64 [T].
        behind: int64 [T].
    """

    samples: int
    before: Integers
    channels: Integers
    behind: Integers

    @property
    def counts(self) -> Integers:
        """int64 [T], values per channel, all samples together."""
        return self.samples * self.before * self.behind

    @property
    def size(self) -> int:
        """Values of one sample, all tensors together."""
        return int(np.sum(self.before * self.channels * self.behind))


def make_layout(
    shapes: Sequence[Sequence[int]], axes: Sequence[int | None], samples: int
) -> Layout | None:
    """The layout of tensors of these shapes; None where one cannot be cut into samples."""
    rows = [_three(list(shape), axis) for shape, axis in zip(shapes, axes, strict=True)]
    if any(stacked % samples for stacked, _, _ in rows):
        return None
    before, channels, behind = np.asarray(rows, np.int64).T
    return Layout(samples, before // samples, channels, behind)


def _three(shape: list[int], axis: int | None) -> tuple[int, int, int]:
    if axis is None:  # one channel, and samples in front of it all the same
        return math.prod(shape), 1, 1
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis:][1:])


# The shapes are not known yet: any tensor can be seen so.
BLIND = [1, 1, 1, -1, 0, 0, 2**62, 2**62]


@dataclass(frozen=True)
class Picks:
    """Which values of each tensor are taken: every n-th, before and behind the channels.

    Attributes:
        layout: of the tensors.
        number: of the first sample.
        starts: int64 [T, 2].
        steps: int64 [T, 2], odd, so that they do not walk along one column of an image.
    """

    layout: Layout
    number: int
    starts: Integers
    steps: Integers

    @property
    def plan(self) -> Integers:
        """What the tapped model is told, int64 [T * 8]."""
        at = self.layout
        stacked = np.full_like(at.before, at.samples)
        form = np.stack([stacked, at.before, at.channels, at.behind], axis=1)
        return np.concatenate([form, self.starts, self.steps], axis=1).ravel()

    def cut(self, values: Floats) -> Iterator[Kept]:
        """The values of each tensor."""
        at, begin = self.layout, 0
        extents = np.stack([at.before, at.behind], axis=1)
        taken = (extents - self.starts + self.steps - 1) // self.steps
        numbers = np.arange(self.number, self.number + at.samples)
        for channels, (before, behind) in zip(at.channels.tolist(), taken.tolist(), strict=True):
            width = before * behind
            end = begin + at.samples * channels * width
            block = values[begin:end].reshape(at.samples, before, channels, behind)
            flat = block.transpose(2, 0, 1, 3).reshape(channels, at.samples, width)
            spread = flat.take(spread_order(width), axis=2).reshape(channels, -1)
            present = numbers if width else numbers[:0]
            yield Kept(spread, present, np.repeat(width, present.size))
            begin = end


def pick(layout: Layout, number: int, samples: int) -> Picks:
    """Choose values.

    Args:
        layout: of the tensors.
        number: of the first sample, which decides where to start.
        samples: how many there are, or at least are; each contributes alike.
    """
    wanted = np.asarray([quota(c, samples) for c in layout.channels.tolist()], np.int64)
    before = np.maximum(np.minimum(layout.before, wanted), 1)
    behind = np.maximum(np.minimum(layout.behind, wanted // before), 1)
    extents = np.stack([layout.before, layout.behind], axis=1)
    steps = -(-extents // np.stack([before, behind], axis=1)) | 1
    starts = (number * _GOLDEN % 1 * steps).astype(np.int64)
    return Picks(layout, number, np.clip(starts, 0, np.maximum(extents - 1, 0)), steps)
