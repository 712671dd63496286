"""Ranges of tensors and weights as the page draws them: bars, histograms, channels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from npuconv.report import words
from npuconv.report.html_graph import fused_activations
from npuconv.schemas.quality import LEVELS_PER_BIN, ChannelRange, TensorQuant, WeightQuant
from npuconv.schemas.report import Report

_BIN, _HIGH = 10, 60  # pixels of a bin's width and of the highest bin's height


@dataclass(frozen=True)
class Bar:
    """A part of a track, in per cent of its length."""

    left: float
    width: float

    @property
    def style(self) -> str:
        """Position and width of the bar as CSS."""
        return f"left:{self.left:.1f}%;width:{self.width:.1f}%"


@dataclass(frozen=True)
class Histogram:
    """Number of values by int8 level, as a drawing of ``width`` x ``height`` pixels.

    The height of a bin is the logarithm of its number, so that rare values are visible.
    """

    counts: tuple[int, ...]  # below -128, 32 bins of 8 levels, above 127
    labels: tuple[str, str, str]  # what the lowest level, 0 and the highest stand for

    @property
    def width(self) -> int:
        """Width of the drawing, in pixels."""
        return _BIN * len(self.counts)

    @property
    def height(self) -> int:
        """Height of the highest bin, in pixels."""
        return _HIGH

    @property
    def inside(self) -> str:
        """Bins of values that int8 holds, as the path of an SVG."""
        return self._path(range(1, len(self.counts) - 1))

    @property
    def outside(self) -> str:
        """The two bins of clipped values, as the path of an SVG."""
        return self._path((0, len(self.counts) - 1))

    @property
    def grid(self) -> str:
        """The edges of the bins, as the path of an SVG: the int8 grid, every eighth level."""
        return "".join(f"M{_BIN * at} 0v{_HIGH}" for at in range(1, len(self.counts)))

    @property
    def text(self) -> str:
        """Description of the drawing."""
        used = sum(1 for number in self.counts[1:-1] if number)
        bins = len(self.counts) - 2
        return (
            f"histogram on the int8 grid: values in {used} of {bins} bins of {LEVELS_PER_BIN} "
            f"levels; {self.counts[0]} of {sum(self.counts)} values below, {self.counts[-1]} above"
        )

    def _path(self, bins: Iterable[int]) -> str:
        most = math.log1p(max(self.counts)) or 1.0
        path = ""
        for at in bins:
            high = round(_HIGH * math.log1p(self.counts[at]) / most, 1)
            if high:
                path += f"M{_BIN * at + 1} {_HIGH}v-{high:g}h{_BIN - 2}v{high:g}z"
        return path


@dataclass(frozen=True)
class ChannelBar:
    """The observed range and the int8 range of one channel, on the track of all."""

    channel: int
    observed: Bar
    int8: Bar
    text: str


@dataclass(frozen=True)
class RangeBar:
    """The observed range and the int8 range of one tensor, on one track."""

    name: str  # of the tensor, or of the layer of the weights
    observed: Bar  # of weights, of all channels
    int8: Bar  # of weights, of the narrowest channel
    zero: float  # position, in per cent
    low: str  # the lowest value observed
    high: str
    clipped: float | None  # share of the values; None if an activation clips them anyway
    note: str
    histogram: Histogram | None = None
    channels: tuple[ChannelBar, ...] = ()

    @property
    def clip(self) -> str:
        """The share that is clipped, as text."""
        return words.percent(self.clipped)


def tensor_ranges(report: Report) -> tuple[RangeBar, ...]:
    """Return the ranges of the activations, those that are clipped most first."""
    tensors = report.quantization.tensors if report.quantization else ()
    fused = {tensor: node.op for tensor, node in fused_activations(report).items()}
    return _sort_by_clipping(_tensor(one, fused.get(one.name, "")) for one in tensors)


def weight_ranges(report: Report) -> tuple[RangeBar, ...]:
    """Return the ranges of the weights of every layer, those that are clipped most first."""
    layers = report.quantization.layers if report.quantization else ()
    return _sort_by_clipping(
        _weights(layer.name, layer.weights, layer.rounding) for layer in layers if layer.weights
    )


def _sort_by_clipping(bars: Iterable[RangeBar]) -> tuple[RangeBar, ...]:
    return tuple(sorted(bars, key=lambda bar: -(bar.clipped or 0.0)))


def _tensor(one: TensorQuant, activation: str) -> RangeBar:
    """Return the ranges of a tensor; an activation behind it clips it, if one is named."""
    low = one.minimum if one.lowest is None else one.lowest
    high = one.maximum if one.highest is None else one.highest
    observed = (one.minimum, one.maximum)
    if not one.clip_fraction:
        # The observed range is that of all tensors with this scale; this one stays inside.
        least = max(one.minimum, low)
        observed = (least, max(least, min(one.maximum, high)))
    scales = f"{one.channels} scales" if one.channels > 1 else "one scale"
    clips = f"; the {activation} behind it cuts the rest off" if activation else ""
    bar = _range(
        one, one.name, observed, (low, high),
        clipped=None if activation else one.clip_fraction,
        note=f"{scales}, {one.scale:.4g} the largest{clips}",
    )  # fmt: skip
    return replace(bar, histogram=_histogram(one), channels=_channels(one.channel_ranges))


def _histogram(one: TensorQuant) -> Histogram | None:
    """Return the histogram of a tensor; the levels of one with many scales have no value."""
    if not sum(one.histogram):
        return None
    labels = ("-128", "0", "127")
    if one.channels == 1 and one.lowest is not None and one.highest is not None:
        middle = 0.0 - one.zero_point * one.scale  # 0.0, not -0.0
        labels = (f"{one.lowest:.4g}", f"{middle:.4g}", f"{one.highest:.4g}")
    return Histogram(one.histogram, labels)


def _channels(rows: Sequence[ChannelRange]) -> tuple[ChannelBar, ...]:
    """Return the channels on one track that holds all their ranges and 0."""
    if not rows:
        return ()
    low = min(0.0, *(min(one.minimum, one.lowest) for one in rows))
    high = max(0.0, *(max(one.maximum, one.highest) for one in rows))
    return tuple(
        ChannelBar(
            row.channel,
            bar_of(row.minimum, row.maximum, low, high),
            bar_of(row.lowest, row.highest, low, high),
            f"channel {row.channel}: {row.minimum:.4g} to {row.maximum:.4g}, "
            f"int8 {row.lowest:.4g} to {row.highest:.4g}",
        )
        for row in rows
    )


def bar_of(start: float, end: float, low: float, high: float) -> Bar:
    """Return the part of the track from ``low`` to ``high`` that a range takes."""
    span = high - low or 1.0
    return Bar(100 * (start - low) / span, 100 * (end - start) / span)


def _weights(name: str, one: WeightQuant, rounding: str) -> RangeBar:
    largest = max(-one.minimum, one.maximum, 0.0)
    least = min(one.smallest_reach, largest)
    how = f"; rounded: {rounding}" if rounding and rounding != "nearest" else ""
    bar = _range(
        one, name, (one.minimum, one.maximum), (-least, least), largest,
        clipped=one.clip_fraction,
        note=f"{words.count(one.channels, 'channel')}, the narrowest within ±{least:.4g}{how}",
    )  # fmt: skip
    levels = Histogram(one.histogram, ("-128", "0", "127"))
    return replace(bar, histogram=levels if sum(one.histogram) else None)


def _range(
    one: TensorQuant | WeightQuant,
    name: str,
    observed: tuple[float, float],
    int8: tuple[float, float],
    largest: float = 0.0,
    *,
    clipped: float | None,
    note: str,
) -> RangeBar:
    """Return both ranges on one track that holds them, 0 and the largest magnitude."""
    low = min(*observed, *int8, 0.0, -largest)
    high = max(*observed, *int8, 0.0, largest)
    return RangeBar(
        name=name,
        observed=bar_of(*observed, low, high),
        int8=bar_of(*int8, low, high),
        zero=100 * -low / (high - low or 1.0),
        low=f"{one.minimum:.4g}",
        high=f"{one.maximum:.4g}",
        clipped=clipped,
        note=note,
    )
