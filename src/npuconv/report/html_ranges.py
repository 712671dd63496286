"""Ranges of tensors and weights as the page draws them: bars, histograms, channels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from npuconv.report import words
from npuconv.report.html_graph import fused_activations
from npuconv.schemas.quality import LEVELS_PER_BIN, ChannelRange, TensorQuant, WeightQuant
from npuconv.schemas.report import Report

_LEVELS = ("-128", "0", "127")  # labels of a histogram of several scales
_BIN, _HIGH = 10, 60  # pixels of a bin's width and of the highest bin's height


@dataclass(frozen=True)
class Bar:
    """A part of a track, in per cent of its length."""

    start: float
    width: float

    @property
    def style(self) -> str:
        """Position and width of the bar as CSS."""
        return f"left:{self.start:.1f}%;width:{self.width:.1f}%"


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
        return "".join(f"M{_BIN * level} 0v{_HIGH}" for level in range(1, len(self.counts)))

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
        for level in bins:
            high = round(_HIGH * math.log1p(self.counts[level]) / most, 1)
            if high:
                path += f"M{_BIN * level + 1} {_HIGH}v-{high:g}h{_BIN - 2}v{high:g}z"
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


def tensor_ranges(report: Report) -> tuple[RangeBar, ...]:
    """Return the ranges of the activations, the most clipped tensors first."""
    tensors = report.quantization.tensors if report.quantization else ()
    fused = fused_activations(report)
    bars = []
    for tensor in tensors:
        low = tensor.minimum if tensor.lowest is None else tensor.lowest
        high = tensor.maximum if tensor.highest is None else tensor.highest
        observed = (tensor.minimum, tensor.maximum)
        if not tensor.clip_fraction:
            # The observed range is that of all tensors with this scale; this one stays inside.
            least = max(tensor.minimum, low)
            observed = (least, max(least, min(tensor.maximum, high)))
        activation = fused.get(tensor.name)
        scales = f"{tensor.channels} scales" if tensor.channels > 1 else "one scale"
        clips = f"; the {activation.op} behind it cuts the rest off" if activation else ""
        bar = _range(
            tensor, tensor.name, observed, (low, high),
            note=f"{scales}, {tensor.scale:.4g} the largest{clips}",
        )  # fmt: skip
        labels = _LEVELS
        if tensor.channels == 1 and tensor.lowest is not None and tensor.highest is not None:
            middle = 0.0 - tensor.zero_point * tensor.scale  # 0.0, not -0.0
            labels = (f"{tensor.lowest:.4g}", f"{middle:.4g}", f"{tensor.highest:.4g}")
        histogram = Histogram(tensor.histogram, labels) if sum(tensor.histogram) else None
        clipped = None if activation else tensor.clip_fraction
        channels = _channels(tensor.channel_ranges)
        bars.append(replace(bar, clipped=clipped, histogram=histogram, channels=channels))
    return _sort_by_clipping(bars)


def weight_ranges(report: Report) -> tuple[RangeBar, ...]:
    """Return the ranges of the weights of every layer, the most clipped layers first."""
    layers = report.quantization.layers if report.quantization else ()
    bars = []
    for layer in layers:
        weights = layer.weights
        if weights is None:
            continue
        largest = max(-weights.minimum, weights.maximum, 0.0)
        least = min(weights.smallest_reach, largest)
        tuned = layer.rounding and layer.rounding != "nearest"
        rounding = f"; rounded: {layer.rounding}" if tuned else ""
        number = words.count(weights.channels, "channel")
        bar = _range(
            weights, layer.name, (weights.minimum, weights.maximum), (-least, least), largest,
            note=f"{number}, the narrowest within ±{least:.4g}{rounding}",
        )  # fmt: skip
        histogram = Histogram(weights.histogram, _LEVELS) if sum(weights.histogram) else None
        bars.append(replace(bar, histogram=histogram))
    return _sort_by_clipping(bars)


def _sort_by_clipping(bars: Iterable[RangeBar]) -> tuple[RangeBar, ...]:
    return tuple(sorted(bars, key=lambda bar: -(bar.clipped or 0.0)))


def _range(
    values: TensorQuant | WeightQuant,
    name: str,
    observed: tuple[float, float],
    int8: tuple[float, float],
    largest: float = 0.0,
    *,
    note: str,
) -> RangeBar:
    """Return both ranges on one track that holds them, 0 and the largest magnitude."""
    low = min(*observed, *int8, 0.0, -largest)
    high = max(*observed, *int8, 0.0, largest)
    return RangeBar(
        name=name,
        observed=bar_of(*observed, low, high),
        int8=bar_of(*int8, low, high),
        zero=bar_of(0.0, 0.0, low, high).start,
        low=f"{values.minimum:.4g}",
        high=f"{values.maximum:.4g}",
        clipped=values.clip_fraction,
        note=note,
    )


def _channels(rows: Sequence[ChannelRange]) -> tuple[ChannelBar, ...]:
    """Return the channels on one track that holds all their ranges and 0."""
    low = min((0.0, *(min(row.minimum, row.lowest) for row in rows)))
    high = max((0.0, *(max(row.maximum, row.highest) for row in rows)))
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
