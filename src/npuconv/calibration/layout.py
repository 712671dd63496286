"""Layout of the tensors of one run: their shapes, and which of their values are taken."""

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
        """int64 [T], values per channel of a sample."""
        return self.before * self.behind

    @property
    def size(self) -> int:
        """Values of one sample, all tensors together."""
        return int(np.sum(self.before * self.channels * self.behind))


def make_layout(
    shapes: Sequence[Sequence[int]], axes: Sequence[int | None], samples: int
) -> Layout | None:
    """The layout of tensors of these shapes; None where one cannot be cut into samples."""
    rows = [_three(list(shape), axis, samples) for shape, axis in zip(shapes, axes, strict=True)]
    if any(stacked % samples for stacked, _, _ in rows):
        return None
    before, channels, behind = np.asarray(rows, np.int64).T
    return Layout(samples, before // samples, channels, behind)


def _three(shape: list[int], axis: int | None, samples: int) -> tuple[int, int, int]:
    if axis is None:  # one channel, and samples in front of it all the same
        whole = math.prod(shape)
        return (samples, 1, whole // samples) if whole % samples == 0 else (whole, 1, 1)
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis:][1:])


# The shapes are not known yet: any tensor can be seen so.
BLIND = [1, 1, 1, -1, 0, 0, 2**62, 2**62]


@dataclass(frozen=True)
class Picks:
    """Selection of values of each tensor: every n-th, before and behind the channels.

    When samples are run together, the model returns all values, and they are picked
    afterwards: so the selection does not depend on how many samples were run at once.

    Attributes:
        layout: of the tensors.
        number: of the first sample.
        starts: int64 [samples, T, 2].
        steps: int64 [T, 2], odd, so that they do not walk along one column of an image.
    """

    layout: Layout
    number: int
    starts: Integers
    steps: Integers

    @property
    def plan(self) -> Integers:
        """Input that tells the tapped model which values to return, int64 [T * 8]."""
        at = self.layout
        stacked = np.full_like(at.before, at.samples)
        form = np.stack([stacked, at.before, at.channels, at.behind], axis=1)
        starts, steps = self.starts[0], self.steps
        if at.samples > 1:
            starts, steps = np.zeros_like(steps), np.ones_like(steps)
        return np.concatenate([form, starts, steps], axis=1).ravel()

    def cut(self, values: Floats) -> Iterator[Kept]:
        """The values of each tensor."""
        at, begin = self.layout, 0
        extents = np.stack([at.before, at.behind], axis=1)
        if at.samples == 1:
            extents = (extents - self.starts[0] + self.steps - 1) // self.steps
        for index, (before, behind) in enumerate(extents.tolist()):
            form = (at.samples, before, int(at.channels[index]), behind)
            end = begin + math.prod(form)
            yield self._kept(index, values[begin:end].reshape(form))
            begin = end

    def _kept(self, index: int, block: Floats) -> Kept:
        """Return the selected values of one tensor, sample by sample."""
        found = []
        for sample, start in zip(block, self.starts[:, index].tolist(), strict=True):
            (before, behind), (far, near) = start, self.steps[index].tolist()
            some = sample[before::far, :, behind::near] if len(block) > 1 else sample
            flat = some.transpose(1, 0, 2).reshape(block.shape[2], some.shape[0] * some.shape[2])
            found.append(flat.take(spread_order(flat.shape[1]), axis=1))
        widths = np.asarray([flat.shape[1] for flat in found], np.int64)
        numbers = np.arange(self.number, self.number + len(block))
        return Kept(np.concatenate(found, axis=1), numbers[widths > 0], widths[widths > 0])


def pick(layout: Layout, number: int, samples: int) -> Picks:
    """Choose values.

    Args:
        layout: of the tensors.
        number: of the first sample; each sample's decides where to start.
        samples: how many there are, or at least are; each contributes alike.
    """
    wanted = np.asarray([quota(c, samples) for c in layout.channels.tolist()], np.int64)
    before = np.maximum(np.minimum(layout.before, wanted), 1)
    behind = np.maximum(np.minimum(layout.behind, wanted // before), 1)
    extents = np.stack([layout.before, layout.behind], axis=1)
    steps = -(-extents // np.stack([before, behind], axis=1)) | 1
    numbers = np.arange(number, number + layout.samples)[:, None, None]
    starts = (numbers * _GOLDEN % 1 * steps).astype(np.int64)
    return Picks(layout, number, np.clip(starts, 0, np.maximum(extents - 1, 0)), steps)
