"""Made-up samples, for a model without data: the form is right, the content is not.

Images are "dead leaves": random rectangles and discs of random brightness that cover each
other, which have edges and flat areas like photographs. Among inputs made without data
they cost the least accuracy; 10 to 30 dB against real data are lost all the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from npuconv.config import Preprocess
from npuconv.errors import CalibrationError
from npuconv.samples.feeds import Array, Feed, InputSpec, Samples
from npuconv.samples.normalize import Floats, normalization

SAMPLES = 16
_LEAVES = 120
_SMALLEST_IMAGE = 8
_CHANNELS = (1, 3, 4)


def open_synthetic(
    inputs: Sequence[InputSpec], preprocess: Preprocess, limit: int, seed: int
) -> Samples:
    """16 samples that depend on the seed alone.

    Float inputs of rank 4 with 1, 3 or 4 channels and at least 8 x 8 pixels get images,
    normalized as ``preprocess`` says, or to -1..1 if it does not; other float inputs a
    normal distribution (0, 1); integers and booleans 0 or 1, which every vocabulary and
    mask has.

    Raises:
        CalibrationError: an input whose shape is not fixed beyond its first axis, or that
            holds no numbers.
    """
    shapes = [_fixed_shape(spec) for spec in inputs]

    def load(k: int) -> Feed:
        return {
            spec.name: _make(spec, shape, preprocess, np.random.default_rng([seed, k, place]))
            for place, (spec, shape) in enumerate(zip(inputs, shapes, strict=True))
        }

    number = min(SAMPLES, limit)
    return Samples(load, tuple(range(number)), f"synthetic, seed {seed}", synthetic=True)


def dead_leaves(
    height: int, width: int, channels: int, rng: np.random.Generator
) -> NDArray[np.float32]:
    """An image of random shapes as float32 [H,W,C] in 0..255.

    Sizes follow 1/r, so that every scale is covered alike; a little noise is on top.
    """
    image = np.empty((height, width, channels), np.float32)
    image[:] = rng.uniform(0, 255, channels)
    largest = max(height, width) / 2
    radii = largest * (2 / largest) ** rng.uniform(0, 1, (_LEAVES, 2))
    for radius in radii[np.argsort(-radii.prod(axis=1), kind="stable")]:
        _paint(image, radius, rng)
    noisy = image + rng.normal(0, 4, image.shape)
    return np.asarray(np.clip(noisy, 0, 255), np.float32)


def _paint(image: Floats, radius: NDArray[np.float64], rng: np.random.Generator) -> None:
    """Draw a rectangle or an ellipse of one colour, in place."""
    centre = rng.uniform(0, 1, 2) * image.shape[:2]
    color = np.asarray(rng.uniform(0, 255, image.shape[2]), np.float32)
    low = np.maximum(centre - radius, 0).astype(int)
    high = np.ceil(centre + radius).astype(int)
    area = image[low[0] : high[0], low[1] : high[1]]
    if rng.uniform() < 0.5:
        area[:] = color
        return
    rows, columns = np.ogrid[: area.shape[0], : area.shape[1]]
    across = ((rows + low[0] - centre[0]) / radius[0]) ** 2
    along = ((columns + low[1] - centre[1]) / radius[1]) ** 2
    area[across + along <= 1] = color


def _make(
    spec: InputSpec, shape: tuple[int, ...], preprocess: Preprocess, rng: np.random.Generator
) -> Array:
    if spec.dtype.kind != "f":
        return np.asarray(rng.integers(0, 2, shape), spec.dtype)
    layout = _image_layout(shape)
    if layout is None:
        return np.asarray(rng.standard_normal(shape), spec.dtype)
    batch = [_image(shape[1:], layout, preprocess, rng) for _ in range(shape[0])]
    return np.stack(batch).astype(spec.dtype)


def _image(
    shape: tuple[int, ...], layout: str, preprocess: Preprocess, rng: np.random.Generator
) -> Floats:
    first = layout == "nchw"
    height, width, channels = (*shape[1:], shape[0]) if first else shape
    pixels = dead_leaves(height, width, channels, rng)
    try:
        mean, std = normalization("synthetic", preprocess, channels)
    except CalibrationError:
        signed = preprocess.model_copy(update={"preset": "signed", "mean": None, "std": None})
        mean, std = normalization("synthetic", signed, channels)
    values = (pixels - mean) / std
    return values.transpose(2, 0, 1) if first else values


def _image_layout(shape: tuple[int, ...]) -> str | None:
    if len(shape) != 4:
        return None
    for layout, channels, sides in (("nchw", 1, shape[2:]), ("nhwc", 3, shape[1:3])):
        if shape[channels] in _CHANNELS and min(sides) >= _SMALLEST_IMAGE:
            return layout
    return None


def _fixed_shape(spec: InputSpec) -> tuple[int, ...]:
    if spec.dtype.kind not in "biuf":
        raise CalibrationError(f"input {spec.name!r}: cannot make up values of {spec.dtype}")
    lengths = (1, *spec.lengths[1:]) if spec.lengths[:1] == (None,) else spec.lengths
    open_axes = [axis for axis, length in enumerate(lengths) if length is None]
    if spec.shape is None or open_axes:
        what = f"dimension {open_axes[0]} of {spec.wanted}" if open_axes else "its rank"
        shown = ",".join("?" if n is None else str(n) for n in lengths) or "..."
        raise CalibrationError(
            f"input {spec.name!r}: {what} is not fixed, so no samples can be made up",
            hint=f"give --input-shape {spec.name}={shown}",
        )
    return tuple(n or 1 for n in lengths)
