"""Ranges of tensors and weights as the page draws them: bars, histograms, channels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from npuconv.records import dataclass
from npuconv.report import words
from npuconv.report.html_graph import fused_activations
from npuconv.schemas.quality import LEVELS_PER_BIN, ChannelRange
from npuconv.schemas.report import Report

_BINS = 256 // LEVELS_PER_BIN  # bins of the values that int8 holds
_BIN, _HIGH = 10, 60  # pixels of a bin's width and of the highest bin's height


@dataclass(frozen=True)
class Histogram:
    """Number of values by int8 level, as a drawing of ``width`` x ``height`` pixels.

    The height of a bin is the logarithm of its number, so that rare values are visible.
    """

    counts: tuple[int, ...]  # below -128, 32 bins of 8 levels, above 127
    labels: tuple[str, str, str] = ("-128", "0", "127")  # texts at the lowest level, 0, the highest
    width = _BIN * (_BINS + 2)
    height = _HIGH
    # The edges of the bins, as the path of an SVG: the int8 grid, every eighth level.
    grid = "".join(f"M{_BIN * level} 0v{_HIGH}" for level in range(1, _BINS + 2))

    @property
    def inside(self) -> str:
        """Bins of values that int8 holds, as the path of an SVG."""
        return self._path(range(1, _BINS + 1))

    @property
    def outside(self) -> str:
        """The two bins of clipped values, as the path of an SVG."""
        return self._path((0, _BINS + 1))

    @property
    def text(self) -> str:
        """Description of the drawing."""
        used = sum(1 for number in self.counts[1:-1] if number)
        return (
            f"histogram on the int8 grid: values in {used} of {_BINS} bins of {LEVELS_PER_BIN} "
            f"levels; {self.counts[0]} of {sum(self.counts)} values below, {self.counts[-1]} above"
        )

    def _path(self, bins: Iterable[int]) -> str:
        most, path = math.log1p(max(self.counts)), ""
        for level in bins:
            if number := self.counts[level]:
                high = f"{_HIGH * math.log1p(number) / most:.1f}".removesuffix(".0")
                path += f"M{_BIN * level + 1} {_HIGH}v-{high}h{_BIN - 2}v{high}z"
        return path


class ChannelBar(NamedTuple):
    """The observed range and the int8 range of one channel, on the track of all."""

    channel: int
    observed: str  # CSS of the bar, as ``bar_style`` returns it
    int8: str
    text: str


class RangeBar(NamedTuple):
    """The observed range and the int8 range of one tensor, on one track."""

    name: str  # name of the tensor, or of the layer of the weights
    observed: str  # CSS of the bar of the observed range; for weights, of all channels
    int8: str  # CSS of the bar of the int8 range; for weights, of the narrowest channel
    zero: float  # position of 0, in per cent
    span: str  # observed range as text
    clipped: float | None  # share of clipped values; None if an activation clips them anyway
    note: str
    histogram: Histogram | None
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
            # The range was observed on all tensors of this scale; without clipping int8 holds it.
            least = max(tensor.minimum, low)
            observed = (least, max(least, min(tensor.maximum, high)))
        activation = fused.get(tensor.name)
        scales = f"{tensor.channels} scales" if tensor.channels > 1 else "one scale"
        clips = f"; the {activation.op} behind it cuts the rest off" if activation else ""
        histogram = Histogram(tensor.histogram)
        if tensor.channels == 1 and tensor.lowest is not None and tensor.highest is not None:
            middle = 0.0 - tensor.zero_point * tensor.scale  # 0.0, not -0.0
            labels = (f"{tensor.lowest:.4g}", f"{middle:.4g}", f"{tensor.highest:.4g}")
            histogram = Histogram(tensor.histogram, labels)
        bars.append(RangeBar(
            tensor.name,
            *_track(observed, (low, high)),
            words.span((tensor.minimum, tensor.maximum)),
            None if activation else tensor.clip_fraction,
            f"{scales}, {tensor.scale:.4g} the largest{clips}",
            histogram if sum(tensor.histogram) else None,
            _channels(tensor.channel_ranges),
        ))  # fmt: skip
    return _sort_by_clipping(bars)


def weight_ranges(report: Report) -> tuple[RangeBar, ...]:
    """Return the ranges of the weights of every layer, the most clipped layers first."""
    layers = report.quantization.layers if report.quantization else ()
    bars = []
    for layer in layers:
        weights = layer.weights
        if weights is None:
            continue
        span = (weights.minimum, weights.maximum)
        largest = max(-weights.minimum, weights.maximum, 0.0)
        least = min(weights.smallest_reach, largest)
        tuned = layer.rounding and layer.rounding != "nearest"
        rounding = f"; rounded: {layer.rounding}" if tuned else ""
        number = words.count(weights.channels, "channel")
        bars.append(RangeBar(
            layer.name,
            *_track(span, (-least, least), largest),
            words.span(span),
            weights.clip_fraction,
            f"{number}, the narrowest within ±{least:.4g}{rounding}",
            Histogram(weights.histogram) if sum(weights.histogram) else None,
        ))  # fmt: skip
    return _sort_by_clipping(bars)


def _sort_by_clipping(bars: Iterable[RangeBar]) -> tuple[RangeBar, ...]:
    return tuple(sorted(bars, key=lambda bar: -(bar.clipped or 0.0)))


def _track(
    observed: tuple[float, float], int8: tuple[float, float], largest: float = 0.0
) -> tuple[str, str, float]:
    """Return both bars and the position of 0, on a track with 0 and the largest magnitude."""
    low, high = min(*observed, *int8, 0.0, -largest), max(*observed, *int8, 0.0, largest)
    bars = bar_style(*observed, low, high), bar_style(*int8, low, high)
    return (*bars, position(0.0, low, high))


def _channels(rows: Sequence[ChannelRange]) -> tuple[ChannelBar, ...]:
    low = min((0.0, *(min(row.minimum, row.lowest) for row in rows)))
    high = max((0.0, *(max(row.maximum, row.highest) for row in rows)))
    return tuple(
        ChannelBar(
            row.channel,
            bar_style(row.minimum, row.maximum, low, high),
            bar_style(row.lowest, row.highest, low, high),
            f"channel {row.channel}: {words.span((row.minimum, row.maximum))}, "
            f"int8 {words.span((row.lowest, row.highest))}",
        )
        for row in rows
    )


def bar_style(start: float, end: float, low: float, high: float) -> str:
    """Return the CSS of a range on the track from ``low`` to ``high``."""
    width = 100 * (end - start) / (high - low or 1.0)
    return f"left:{position(start, low, high):.1f}%;width:{width:.1f}%"


def position(value: float, low: float, high: float) -> float:
    """Return the position of a value on the track, in per cent."""
    return 100 * (value - low) / (high - low or 1.0)
