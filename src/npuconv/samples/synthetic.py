"""Samples for a model without data: pictures where it reads an image, else made-up numbers.

Photographs that are normalized as in training show a model's ranges about as well as its
own data does; made-up numbers have the right form, and lose 10 to 30 dB.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuconv.config import Preprocess
from npuconv.errors import CalibrationError
from npuconv.samples import pictures
from npuconv.samples.feeds import Array, Feed, InputSpec, Samples
from npuconv.samples.normalizations import IMAGE_CHANNELS, SIGNED, Normalization, asked_for

SAMPLES = 32
MIN_SIDE = 8  # pixels of an image
MIN_GREY_SIDE = 16  # of a grey one that is not square: a narrow one is rather a spectrum


def open_synthetic(
    inputs: Sequence[InputSpec], preprocess: Preprocess, limit: int, seed: int
) -> Samples:
    """Open 32 samples that depend on the options alone.

    Float inputs of rank 4 that look like images get pictures, normalized as ``preprocess``
    says, or to -1..1 if it does not; other float inputs a normal distribution (0, 1); integers
    and booleans 0 or 1, which every vocabulary and mask has.

    Raises:
        CalibrationError: an input whose shape is not fixed beyond its first axis, or that
            holds no numbers.
    """
    shapes = [_fixed_shape(spec) for spec in inputs]
    pixels = asked_for(preprocess)

    def load(k: int) -> Feed:
        return {
            spec.name: _make(spec, shape, preprocess, k, [seed, k, place])
            for place, (spec, shape) in enumerate(zip(inputs, shapes, strict=True))
        }

    number = min(SAMPLES, limit)
    description, has_photographs = f"synthetic, seed {seed}", False
    if reads_images(inputs):
        has_photographs = pictures.are_photographs()
        source = "builtin photographs" if has_photographs else "made-up pictures"
        description = f"{source}, {pixels.name if pixels else 'normalization unknown'}"
    is_made_up = pixels is None or not has_photographs
    indices = tuple(range(number))
    return Samples(load, indices, description, synthetic=is_made_up, builtin=True)


def reads_images(inputs: Sequence[InputSpec]) -> bool:
    """Return whether a model has one input, and that looks like images."""
    return len(inputs) == 1 and image_layout(inputs[0]) is not None


def image_layout(spec: InputSpec) -> str | None:
    """Return ``nchw`` or ``nhwc`` of an input that looks like images, else None."""
    return _image_layout(tuple(n or 1 for n in spec.lengths)) if spec.dtype.kind == "f" else None


def _make(
    spec: InputSpec, shape: tuple[int, ...], keys: Preprocess, number: int, seeds: Sequence[int]
) -> Array:
    rng = np.random.default_rng(seeds)
    if spec.dtype.kind != "f":
        return np.asarray(rng.integers(0, 2, shape), spec.dtype)
    layout = _image_layout(shape)
    if layout is None:
        return np.asarray(rng.standard_normal(shape), spec.dtype)
    pixels = asked_for(keys) or SIGNED
    numbers = range(number * shape[0], (number + 1) * shape[0])
    batch = [draw(shape[1:], layout, k, seed=seeds[0]) for k in numbers]
    return normalized(np.stack(batch), layout, pixels, keys.color).astype(spec.dtype)


def draw(shape: tuple[int, ...], layout: str, number: int, *, seed: int = 0) -> Array:
    """Return one picture in 0..255, RGB, laid out as an input of the model without its batch."""
    height, width, channels = (*shape[1:], shape[0]) if layout == "nchw" else shape
    found = pictures.picture(number, (height, width), channels, seed)
    return found.transpose(2, 0, 1) if layout == "nchw" else found


def normalized(batch: Array, layout: str, pixels: Normalization, color: str = "rgb") -> Array:
    """Return pictures as a normalization feeds them to a model.

    Args:
        batch: RGB in 0..255, [N,C,H,W] or [N,H,W,C].
        layout: which of the two.
        pixels: the normalization.
        color: ``bgr`` turns the order of three channels round.
    """
    axis = 1 if layout == "nchw" else 3
    if color == "bgr" and batch.shape[axis] == len("bgr"):
        batch = np.flip(batch, axis)
    return np.ascontiguousarray(pixels.apply(batch, axis))


def _image_layout(shape: tuple[int, ...]) -> str | None:
    if len(shape) != 4:
        return None
    for layout, channels, sides in (("nchw", 1, shape[2:]), ("nhwc", 3, shape[1:3])):
        is_grey = shape[channels] == 1 and sides[0] != sides[1]
        minimum = MIN_GREY_SIDE if is_grey else MIN_SIDE
        if shape[channels] in IMAGE_CHANNELS and min(sides) >= minimum:
            return layout
    return None


def _fixed_shape(spec: InputSpec) -> tuple[int, ...]:
    if spec.dtype.kind not in "biuf":
        raise CalibrationError(f"input {spec.name!r}: cannot make up values of {spec.dtype}")
    lengths = (1, *spec.lengths[1:]) if spec.lengths[:1] == (None,) else spec.lengths
    open_axes = [axis for axis, length in enumerate(lengths) if length is None]
    if spec.shape is None or open_axes:
        what = f"dimension {open_axes[0]} of {spec.wanted}" if open_axes else "its rank"
        wanted = ",".join("?" if n is None else str(n) for n in lengths) or "..."
        raise CalibrationError(
            f"input {spec.name!r}: {what} is not fixed, so no samples can be made up",
            hint=f"give --input-shape {spec.name}={wanted}",
        )
    return tuple(n or 1 for n in lengths)
