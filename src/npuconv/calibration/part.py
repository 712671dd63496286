"""A part: what was seen of a few adjacent samples. Parts are what is joined and stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from npuconv.arithmetic.statistics import Doubles, Floats, Integers, Kept, Statistics, thin
from npuconv.calibration.runner import Glance, Runner
from npuconv.calibration.workers import Line
from npuconv.errors import CalibrationError
from npuconv.samples.feeds import Feed

_LARGEST = np.finfo(np.float32).max  # finite, for the cache
PART = 16  # samples; a multiple of every size of a batch


class Part:
    """Takes samples one by one, and runs them together where that is possible.

    How they are grouped depends on nothing but the part, so the numbers do not either.

    Args:
        runner: runs the samples.
        first: number of the first sample.
    """

    def __init__(self, runner: Runner, first: int) -> None:
        self._runner, self._first = runner, first
        self._waiting: list[Feed] = []
        self._line = Line[tuple[list[Feed], int], Glance](lambda each: runner.run(*each))
        self._glances: list[Glance] = []
        self._kept: list[list[Kept]] = [[] for _ in runner.tensors]
        self._taken = 0

    def add(self, feed: Feed) -> None:
        """Take one more sample.

        Raises:
            CalibrationError: a tensor holds values that are not finite.
            RuntimeRefusedError: onnxruntime does not take the model, or a node fails.
        """
        self._runner.settle(feed)
        if self._waiting and _shapes(self._waiting[0]) != _shapes(feed):
            self._flush()
        self._waiting.append(feed)
        if len(self._waiting) == self._runner.batch:
            self._flush()

    def finish(self) -> dict[str, Statistics]:
        """Return the statistics of the tensors.

        Raises:
            CalibrationError: also where the number of channels of a tensor differs between samples.
        """
        self._flush()
        self._keep(self._line.rest())
        _check_channels(self._glances, self._runner.tensors)
        return _summarize(self._glances, self._runner.tensors, self._kept, self._first)

    def abandon(self) -> None:
        """Cancel the runs of this part and drop their results."""
        self._line.abandon()

    def _flush(self) -> None:
        if self._waiting:
            self._keep(self._line.put((self._waiting, self._first + self._taken)))
            self._taken += len(self._waiting)
            self._waiting = []

    def _keep(self, glances: Iterable[Glance]) -> None:
        for glance in glances:
            for own, kept in zip(self._kept, glance.picks.cut(glance.values), strict=True):
                own.append(kept)
            self._glances.append(replace(glance, values=glance.values[:0].copy()))


def _shapes(feed: Feed) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in feed.items()}


def channels_differ(name: str) -> CalibrationError:
    """Return the error for a tensor whose number of channels differs between samples."""
    return CalibrationError(
        f"tensor {name!r} has not as many channels in every sample",
        hint="give samples of one shape, or fix it with --input-shape",
    )


def _check_channels(glances: Sequence[Glance], tensors: Mapping[str, int | None]) -> None:
    channels = np.asarray([glance.picks.layout.channels for glance in glances])
    changing = np.flatnonzero((channels != channels[0]).any(axis=0))
    if changing.size:
        raise channels_differ(list(tensors)[changing[0]])


def _summarize(
    glances: Sequence[Glance],
    tensors: Mapping[str, int | None],
    kept: Sequence[list[Kept]],
    first: int,
) -> dict[str, Statistics]:
    layouts = [glance.picks.layout for glance in glances]
    each = [layout.samples for layout in layouts]
    counts = np.repeat([layout.counts for layout in layouts], each, axis=0)  # [samples, T]
    samples, ends = len(counts), np.cumsum(layouts[0].channels)
    lows, highs, means = _together(glances, counts, layouts[0].channels)
    seconds = _seconds(glances, counts, layouts[0].channels)
    found = {}
    for index, (name, axis) in enumerate(tensors.items()):
        own = slice(ends[index] - layouts[0].channels[index], ends[index])
        some = thin(kept[index], first + samples)
        kept[index].clear()  # while the next is put together, this is not there twice
        found[name] = Statistics(
            name=name, axis=axis, lows=lows[own], highs=highs[own],
            second_lows=seconds[0][own], second_highs=seconds[1][own], means=means[own],
            squares=_squares(some.values, means[own]), values=some.values,
            samples=samples, count=int(counts[:, index].sum()), first=first,
            numbers=some.numbers, widths=some.widths,
        )  # fmt: skip
    return found


def _seconds(
    glances: Sequence[Glance], counts: Integers, channels: Integers
) -> tuple[Floats, Floats]:
    """Return the next to smallest minima and the next to largest maxima of the samples."""
    seen = np.repeat(counts > 0, channels, axis=1)
    lows = np.sort(np.where(seen, _rows([g.lows for g in glances]), 0), axis=0)
    highs = np.sort(np.where(seen, _rows([g.highs for g in glances]), 0), axis=0)
    if len(counts) == 1:
        return np.full_like(lows[0], _LARGEST), np.full_like(highs[0], -_LARGEST)
    return lows[1], highs[-2]


def _together(
    glances: Sequence[Glance], counts: Integers, channels: Integers
) -> tuple[Floats, Floats, Doubles]:
    """Extremes and means of all samples, all tensors one behind the other; 0 of no values."""
    shares = np.repeat(counts / np.maximum(counts.sum(axis=0), 1), channels, axis=1)
    seen = np.repeat(counts > 0, channels, axis=1)
    never = ~seen.any(axis=0)
    lows = np.where(never, 0, np.min(_rows([g.lows for g in glances]), axis=0))
    highs = np.where(never, 0, np.max(_rows([g.highs for g in glances]), axis=0))
    each = np.where(seen, _rows([g.means for g in glances]), 0)
    with np.errstate(invalid="ignore"):  # sums of values near the end of float32 may be infinite
        means = np.sum(shares * each, axis=0)
    # Sums in float32 may leave the bounds by their last bit, or overflow.
    means = np.nan_to_num(means, nan=0.0, posinf=np.inf, neginf=-np.inf)
    return lows, highs, means.clip(lows, highs)


def _rows(arrays: Sequence[Floats]) -> Floats:
    """Put the samples of all runs one under the other."""
    return np.concatenate(arrays, axis=0)


def _squares(values: Floats, means: Doubles) -> Doubles:
    """Mean squares: the spread of the values that were kept, around the mean of all."""
    if not values.shape[1]:
        return np.square(means)
    return np.asarray(np.var(values, axis=1, dtype=np.float64) + np.square(means))
