"""Where the outputs of layers are in a converted model, and what they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npuconv.arithmetic.qparams import dequantize
from npuconv.errors import ModelError

Array = NDArray[Any]


@dataclass(frozen=True)
class Layer:
    """Where to look for the output of one layer in both models."""

    name: str  # the user's own name of the convolution
    tensor: str  # its output in the float model
    stored: str  # the same, int8, in the converted model
    scale: float | Array  # one, or one for each channel
    zero_point: int | Array = 0
    note: str = ""
    channels_last: bool = False  # in the converted model
    axis: int = 1  # of the channels in the float model
    channels: tuple[int, ...] = ()  # the float model's, that each is; all their own if empty


def numbers(layer: Layer, stored: Array) -> Array:
    """What the integers of a layer's output stand for, laid out as in the float model.

    Of a channel that is stored several times it is the mean that is read.

    Raises:
        ModelError: they are no numbers, or have other channels than are noted.
    """
    if layer.channels_last and stored.ndim > 1:
        stored = np.moveaxis(stored, -1, 1)
    _check_fits(layer, stored)
    return _means(layer, _dequantized(layer, stored))


def exact(layer: Layer, values: Array) -> Array:
    """The same of the float model's output: the channels that the converted model has.

    Raises:
        ModelError: it has other channels than are noted.
    """
    held = sorted(set(layer.channels))
    if held and held[-1] >= _channels(layer, values):
        raise _odd(layer, f"{layer.tensor!r} has {list(values.shape)} values in the float model")
    return np.take(values, held, layer.axis) if held else values


def _dequantized(layer: Layer, stored: Array) -> Array:
    if np.size(layer.scale) == 1 and np.size(layer.zero_point) == 1:
        one = np.reshape(layer.scale, ()), np.reshape(layer.zero_point, ())
        return np.asarray(dequantize(stored, *one))
    return np.asarray(dequantize(stored, layer.scale, layer.zero_point, layer.axis))


def _means(layer: Layer, values: Array) -> Array:
    """One channel for each that the float model has, and the converted model too."""
    if not layer.channels:
        return values
    places = np.asarray(layer.channels)
    own = (values.take(np.flatnonzero(places == k), layer.axis) for k in sorted(set(places)))
    return np.stack([each.mean(axis=layer.axis) for each in own], axis=layer.axis)


def _check_fits(layer: Layer, stored: Array) -> None:
    counts = {np.size(layer.scale), np.size(layer.zero_point)} - {1}
    counts |= {len(layer.channels)} - {0}
    # The mean of copies is float.
    if stored.dtype.kind not in "iuf" or counts - {_channels(layer, stored)}:
        raise _odd(
            layer,
            f"{layer.stored!r} is {stored.dtype} of shape {list(stored.shape)}, but has "
            f"{max(counts, default=1)} scales in the int8 model",
        )


def _channels(layer: Layer, values: Array) -> int:
    return values.shape[layer.axis] if 0 <= layer.axis < values.ndim else 0


def _odd(layer: Layer, what: str) -> ModelError:
    hint = "its metadata does not fit it: convert the model again"
    return ModelError(f"layer {layer.name!r}: {what}", hint=hint)
