"""Bars of the page: how accurate every layer is, and what int8 holds of every range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from npuconv.report import digest, words
from npuconv.report.html_boxes import activations
from npuconv.schemas.report import LayerQuant, Report, TensorQuant, WeightQuant

FULL_DB = 60.0  # an int8 layer rarely gets past it
WEAK_DB = 20.0  # below, a layer is worth a look
_VALUES = 10  # of a limit that are told
_LEAST = 0.01  # of a bar that is to be seen


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
class LayerBar:
    """One layer: how far its output is from the float model, and what its rounding adds."""

    layer: LayerQuant
    most: float = 1.0  # the largest share of the noise among all layers

    @property
    def share(self) -> str:
        """Its SQNR, in per cent of a whole bar; an exact one fills it."""
        share = 1.0 if self.is_exact else (self.layer.sqnr_db or 0.0) / FULL_DB
        return f"{100 * min(max(share, _LEAST), 1.0):.1f}"

    @property
    def noise(self) -> str:
        """Its share of the noise, in per cent; empty where that is not known."""
        share = self.layer.noise_share
        return "" if share is None else f"{100 * min(max(share, 0.0), 1.0):.1f}"

    @property
    def noise_height(self) -> str:
        """The same, beside the largest of all layers."""
        share = self.layer.noise_share
        return "" if share is None else f"{100 * max(share, 0.0) / self.most:.1f}"

    @property
    def is_exact(self) -> bool:
        """True if the output of the layer has no error."""
        return self.layer.sqnr_db is None and self.layer.cosine is not None

    @property
    def is_weak(self) -> bool:
        """True if the SQNR of the layer is below ``WEAK_DB``."""
        return not self.is_exact and (self.layer.sqnr_db or 0.0) < WEAK_DB

    @property
    def text(self) -> str:
        """Tooltip of the bar."""
        parts = [self.layer.name, words.sqnr(self.layer.sqnr_db, self.layer.cosine)]
        if self.layer.noise_share is not None:
            parts.append(f"{words.percent(self.layer.noise_share)} of the noise")
        return ", ".join(parts)


def profile(report: Report) -> tuple[LayerBar, ...]:
    """The layers that were measured, in the order of the network."""
    layers = report.quantization.layers if report.quantization else ()
    most = max((one.noise_share or 0.0 for one in layers), default=0.0) or 1.0
    measured = (one for one in layers if one.cosine is not None or one.sqnr_db is not None)
    return tuple(LayerBar(one, most) for one in measured)


def ranked(report: Report) -> tuple[LayerBar, ...]:
    """The same; those whose own rounding costs most are first."""
    return tuple(LayerBar(one) for one in digest.ranked_layers(report))


@dataclass(frozen=True)
class RangeBar:
    """One tensor: the values that were seen, and those that int8 holds."""

    name: str
    seen: Bar
    held: Bar
    zero: float  # where 0 is, in per cent
    low: str
    high: str
    clipped: float | None  # share of the values; None where it means nothing
    note: str

    @property
    def clip(self) -> str:
        """The share that is clipped."""
        return words.percent(self.clipped)


def tensor_ranges(report: Report) -> tuple[RangeBar, ...]:
    """The activations; those that lose most are first."""
    tensors = report.quantization.tensors if report.quantization else ()
    cut = activations(report)
    bars = [_tensor(one, cut[one.name].op if one.name in cut else "") for one in tensors]
    return tuple(sorted(bars, key=lambda bar: -(bar.clipped or 0.0)))


def weight_ranges(report: Report) -> tuple[RangeBar, ...]:
    """The weights of every layer; those that lose most are first."""
    layers = report.quantization.layers if report.quantization else ()
    bars = [_weights(one.name, one.weights, one.rounding) for one in layers if one.weights]
    return tuple(sorted(bars, key=lambda bar: -(bar.clipped or 0.0)))


def some(values: Sequence[str]) -> str:
    """A long list of values by its ends."""
    if len(values) <= _VALUES:
        return ", ".join(values)
    return f"{', '.join(values[: _VALUES - 2])} ... {values[-1]} ({len(values)} values)"


def _tensor(one: TensorQuant, activation: str) -> RangeBar:
    low = one.minimum if one.lowest is None else one.lowest
    high = one.maximum if one.highest is None else one.highest
    channels = f"{one.channels} scales" if one.channels > 1 else "one scale"
    cut = f"; the {activation} behind it cuts the rest off" if activation else ""
    # What was seen is told of all tensors that share a scale; one alone may reach less far.
    inside = not one.clip_fraction
    least, most = (
        (max(one.minimum, low), min(one.maximum, high)) if inside else (one.minimum, one.maximum)
    )
    return RangeBar(
        name=one.name,
        **_bars((least, max(least, most)), (low, high)),
        low=f"{one.minimum:.4g}",
        high=f"{one.maximum:.4g}",
        clipped=None if activation else one.clip_fraction,
        note=f"{channels}, {one.scale:.4g} the largest{cut}",
    )


def _weights(name: str, one: WeightQuant, rounding: str) -> RangeBar:
    reach = max(-one.minimum, one.maximum, 0.0)
    least = min(one.smallest_reach, reach)
    how = f"; rounded: {rounding}" if rounding and rounding != "nearest" else ""
    return RangeBar(
        name=name,
        **_bars((one.minimum, one.maximum), (-least, least), reach),
        low=f"{one.minimum:.4g}",
        high=f"{one.maximum:.4g}",
        clipped=one.clip_fraction,
        note=f"{words.count(one.channels, 'channel')}, the smallest within {least:.4g}{how}",
    )


def _bars(
    seen: tuple[float, float], held: tuple[float, float], reach: float = 0.0
) -> dict[str, Any]:
    """Both ranges on one track that holds them and 0."""
    low = min(*seen, *held, 0.0, -reach)
    span = max(*seen, *held, 0.0, reach) - low or 1.0

    def bar(ends: tuple[float, float]) -> Bar:
        return Bar(100 * (ends[0] - low) / span, 100 * (ends[1] - ends[0]) / span)

    return {"seen": bar(seen), "held": bar(held), "zero": 100 * -low / span}
