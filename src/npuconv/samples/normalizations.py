"""Usual normalizations of pixels, and a guess at which of them samples have had."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from npuconv.samples.normalize import PRESETS

if TYPE_CHECKING:
    from npuconv.config import Preprocess

Floats = NDArray[np.float32]
_IMAGE_CHANNELS = (1, 3, 4)
_RANK = 4
_SLACK = 0.02  # of the range: interpolation overshoots, and (pixel - 127) / 128 is usual too


@dataclass(frozen=True)
class Normalization:
    """``(pixel - mean) / std`` per channel, in pixels of 0..255.

    Attributes:
        name: for people.
        option: the flags that ask for it.
        mean: one number per channel, or one.
        std: likewise.
    """

    name: str
    option: str
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def apply(self, pixels: Floats, axis: int) -> Floats:
        """Pixels as this normalization feeds them to a model."""
        mean, std = (_spread(numbers, pixels, axis) for numbers in (self.mean, self.std))
        return np.asarray((pixels - mean) / std, np.float32)

    def undo(self, values: Floats, axis: int) -> Floats:
        """The pixels that values were made from."""
        mean, std = (_spread(numbers, values, axis) for numbers in (self.mean, self.std))
        return np.asarray(values * std + mean, np.float32)


RAW = Normalization("0..255", "--preprocess raw", (0.0,), (1.0,))
UNIT = Normalization("0..1", "--preprocess unit", (0.0,), (255.0,))
SIGNED = Normalization("-1..1", "--preprocess signed", (127.5,), (127.5,))
IMAGENET = Normalization(
    "ImageNet's mean and std",
    "--preprocess imagenet",
    (123.675, 116.28, 103.53),
    (58.395, 57.12, 57.375),
)
CENTRED = Normalization(
    "0..255 minus the mean",
    "--mean 123.68,116.78,103.94 --std 1",
    (123.68, 116.78, 103.94),
    (1.0,),
)
HALF = Normalization("-0.5..0.5", "--mean 127.5 --std 255", (127.5,), (255.0,))


def guess(values: Floats) -> Normalization | None:
    """Return the normalization that images seem to have had, judging from their extremes.

    It has the narrowest range that holds them and that they fill well; None if there is none.
    """
    low, high = float(values.min()), float(values.max())
    for item, (least, most) in _RANGES:
        slack = _SLACK * (most - least)
        inside = least - slack <= low and high <= most + slack
        if inside and high - low > 0.4 * (most - least) and (low < 0) == (least < 0):
            return item
    return None


_RANGES: tuple[tuple[Normalization, tuple[float, float]], ...] = (
    (HALF, (-0.5, 0.5)),
    (UNIT, (0.0, 1.0)),
    (SIGNED, (-1.0, 1.0)),
    (IMAGENET, (-2.12, 2.64)),
    (RAW, (0.0, 255.0)),
    (CENTRED, (-124.0, 152.0)),
)


def image_axis(shape: tuple[int, ...]) -> int | None:
    """The axis of the colours of a tensor that looks like images, else None."""
    if len(shape) != _RANK:
        return None
    for axis, others in ((1, (2, 3)), (3, (1, 2))):
        if shape[axis] in _IMAGE_CHANNELS and min(shape[k] for k in others) > max(_IMAGE_CHANNELS):
            return axis
    return None


def _spread(numbers: tuple[float, ...], values: Floats, axis: int) -> Floats:
    """One number per channel, laid out to meet the values; an alpha channel gets the mean."""
    channels = values.shape[axis]
    array = np.asarray(numbers, np.float32)
    if array.size != channels:
        array = np.full(channels, array.mean(), np.float32)
    return array.reshape([-1 if k == axis else 1 for k in range(values.ndim)])


def asked_for(keys: Preprocess) -> Normalization | None:
    """Return the normalization that options ask for; None where they say none."""
    if keys.mean is not None and keys.std is not None:
        return Normalization(keys.said, keys.said, keys.mean, keys.std)
    if keys.preset is None or keys.preset not in PRESETS:
        return None
    # Presets are in the order of red, green and blue; what is given, in that of the input.
    order = -1 if keys.color == "bgr" else 1
    mean, std = (numbers[::order] for numbers in PRESETS[keys.preset])
    return Normalization(keys.said, keys.said, keys.mean or mean, keys.std or std)
