"""Normalizations of pixels: the usual presets, and the normalizations of options and samples."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from npuconv.amounts import count
from npuconv.config import Preprocess
from npuconv.data.samples import InputSpec
from npuconv.errors import CalibrationError
from npuconv.records import dataclass

Floats = NDArray[np.float32]
IMAGE_CHANNELS = (1, 3, 4)
RANGE_SLACK = 0.02  # share of the range: interpolation overshoots; (pixel - 127) / 128 is usual
MIN_RANGE_SHARE = 0.4  # least share of the range of a normalization that samples fill


@dataclass(frozen=True)
class PixelNormalization:
    """``(pixel - mean) / std`` per channel, in pixels of 0..255."""

    name: str  # name in messages
    option: str  # flags that select it
    mean: tuple[float, ...]  # a number per channel, or a number for all channels
    std: tuple[float, ...]  # a number per channel, or a number for all channels

    def apply(self, pixels: Floats, axis: int) -> Floats:
        """Return pixels as this normalization feeds them to a model."""
        mean, std = (_spread(numbers, pixels, axis) for numbers in (self.mean, self.std))
        return np.asarray((pixels - mean) / std, np.float32)

    def undo(self, values: Floats, axis: int) -> Floats:
        """Return the pixels that values were made from."""
        mean, std = (_spread(numbers, values, axis) for numbers in (self.mean, self.std))
        return np.asarray(values * std + mean, np.float32)


# In the order red, green, blue. ImageNet's numbers are those of torchvision, times 255.
RAW = PixelNormalization("0..255", "--preprocess raw", (0.0,), (1.0,))
UNIT = PixelNormalization("0..1", "--preprocess unit", (0.0,), (255.0,))
SIGNED = PixelNormalization("-1..1", "--preprocess signed", (127.5,), (127.5,))
IMAGENET = PixelNormalization(
    "ImageNet's mean and std",
    "--preprocess imagenet",
    (123.675, 116.28, 103.53),
    (58.395, 57.12, 57.375),
)
CENTRED = PixelNormalization(
    "0..255 minus the mean", "--mean 123.68,116.78,103.94 --std 1", (123.68, 116.78, 103.94), (1.0,)
)
HALF = PixelNormalization("-0.5..0.5", "--mean 127.5 --std 255", (127.5,), (255.0,))
PRESETS = {"unit": UNIT, "signed": SIGNED, "imagenet": IMAGENET, "raw": RAW}
_INT8 = PixelNormalization("-128..127", "--mean 128 --std 1", (128.0,), (1.0,))


def guess(values: Floats) -> PixelNormalization | None:
    """Return the normalization that images seem to have had, judging from their extremes.

    It has the narrowest range that holds them and that they fill well; None if there is none.
    """
    low, high = float(values.min(initial=np.inf)), float(values.max(initial=-np.inf))
    for item, (lowest, highest) in _RANGES:
        width = highest - lowest
        slack = RANGE_SLACK * width
        inside = lowest - slack <= low and high <= highest + slack
        if inside and high - low > MIN_RANGE_SHARE * width and (low < 0) == (lowest < 0):
            return item
    return None


_RANGES: tuple[tuple[PixelNormalization, tuple[float, float]], ...] = (
    (HALF, (-0.5, 0.5)),
    (UNIT, (0.0, 1.0)),
    (SIGNED, (-1.0, 1.0)),
    (IMAGENET, (-2.12, 2.64)),
    (RAW, (0.0, 255.0)),
    (CENTRED, (-124.0, 152.0)),
)


def _spread(numbers: tuple[float, ...], values: Floats, axis: int) -> Floats:
    """Lay out one number per channel to meet the values; an alpha channel gets the mean."""
    channels = values.shape[axis]
    array = np.asarray(numbers, np.float32)
    if array.size != channels:
        array = np.full(channels, array.mean(), np.float32)
    return array.reshape([-1 if k == axis else 1 for k in range(values.ndim)])


def asked_for(keys: Preprocess) -> PixelNormalization | None:
    """Return the normalization that options ask for, if any."""
    if keys.mean is not None and keys.std is not None:
        return PixelNormalization(keys.phrase, keys.phrase, keys.mean, keys.std)
    preset = PRESETS.get(keys.preset or "")
    if preset is None:
        return None
    # Presets are in the order red, green, blue; options are in the order of the input.
    order = -1 if keys.color == "bgr" else 1
    mean, std = preset.mean[::order], preset.std[::order]
    return PixelNormalization(keys.phrase, keys.phrase, keys.mean or mean, keys.std or std)


def normalization_of(spec: InputSpec, keys: Preprocess) -> PixelNormalization | None:
    """Return the normalization of an input; for integers whole pixels by default.

    Raises:
        CalibrationError: the options ask for numbers that integers cannot be.
    """
    asked = asked_for(keys)
    if spec.dtype.kind == "f":
        return asked
    if asked is None:
        return _INT8 if spec.dtype == np.int8 else RAW
    pixel_values = [(pixel - np.array(asked.mean)) / np.array(asked.std) for pixel in (0, 1, 255)]
    if any((values != values.astype(spec.dtype)).any() for values in pixel_values):
        raise CalibrationError(
            f"input {spec.name!r} is {spec.dtype}, so its pixels are whole numbers, and"
            f" {keys.phrase!r} makes others of them",
            hint="leave out --preprocess, --mean and --std",
        )
    return asked


def mean_and_std(label: str, keys: Preprocess, channels: int) -> tuple[Floats, Floats]:
    """Return mean and std, float32 of length 1 or ``channels``, in the order of the input.

    Raises:
        CalibrationError: neither a preset nor both values, or lengths that do not fit.
    """
    present = [name for name in ("mean", "std") if getattr(keys, name) is not None]
    if keys.preset is None and len(present) == 1:
        missing = "std" if present == ["mean"] else "mean"
        raise CalibrationError(f"{label}: --{present[0]} without --{missing}", hint="give both")
    if keys.preset in (None, "none") and (keys.mean is None or keys.std is None):
        reason = "how pixels become inputs is not known, and a wrong guess is as bad as no data"
        if keys.preset == "none":
            reason = "--preprocess none is for runs without --calibration: images need a scale"
        raise CalibrationError(
            f"{label}: {reason}", hint=f"give --preprocess {'|'.join(PRESETS)}, or --mean and --std"
        )
    asked = asked_for(keys)
    assert asked is not None, "a preset, or both numbers"
    pair = (asked.mean, asked.std)
    for name, values in zip(("mean", "std"), pair, strict=True):
        if len(values) not in (1, channels):
            is_option = getattr(keys, name) is not None
            origin = "" if is_option else f" of --preprocess {keys.preset}"
            raise CalibrationError(
                f"{label}: {name}{origin} has {count(len(values), 'value')} for"
                f" {count(channels, 'channel')}",
                hint="give --mean and --std with one value, or one per channel",
            )
    return np.array(pair[0], np.float32), np.array(pair[1], np.float32)
