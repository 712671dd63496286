"""Samples for a model without data: pictures where it reads an image, else made-up numbers.

A dozen photographs that are normalized as in training show the ranges of a model about as
well as its own data does (``docs/calibration.md``). They come from the files that the wheel
of scikit-image holds, where it is installed (``npuconv[photos]``); it is not imported. Else
pictures are made: the spectrum of photographs, shapes that cover each other, and text.
Made-up numbers have the right form, and lose 10 to 30 dB.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from npuconv.config import Preprocess
from npuconv.data.normalizations import IMAGE_CHANNELS, SIGNED, Floats, normalization_of
from npuconv.data.samples import Array, Feed, InputSpec, Samples
from npuconv.errors import CalibrationError
from npuconv.lazy import Image, ImageDraw, ImageFont
from npuconv.records import replace

Pixels = NDArray[np.uint8]
Size = tuple[int, int]  # height, width

# People, animals, things, pages. Textures and the sky widen ranges that others do not need.
_FILES = (
    "astronaut.png", "coffee.png", "chelsea.png", "rocket.jpg", "page.png",
    "motorcycle_left.png", "coins.png", "camera.png", "ihc.png", "text.png",
)  # fmt: skip
_WORDS = (
    "the quick brown fox", "EXIT 24", "Hello, world", "NOVEMBER", "3.14159", "open daily 9-18",
    "SALE -50%", "int8", "to be or not to be", "No. 7", "AB 1234 CD", "Total: 129,90",
)  # fmt: skip
SHAPES = 40  # number of shapes that cover each other in a made picture
_PAGES = (4,)  # places of the pages of text among eight pictures
MAX_KEPT_PIXELS = 320 * 320  # pixels of a picture that is kept: 20 MB in all
MAX_CHARACTER_SIDE = 40  # pixels: a grey picture of so few is likely to show a character


@cache
def folder() -> Path | None:
    """Return the folder of the photographs; None where the package is not installed."""
    spec = find_spec("skimage")
    if spec is None or spec.origin is None:
        return None
    data = Path(spec.origin).parent / "data"
    return data if (data / _FILES[0]).exists() else None


def draw(shape: tuple[int, ...], layout: str, number: int, *, seed: int = 0) -> Floats:
    """Return one picture in 0..255, float32, RGB.

    Args:
        shape: shape of the input without its batch; 1 channel is grey, the last of 4 brightness.
        layout: ``nchw`` or ``nhwc``.
        number: number of the picture, from 0; no two are the same.
        seed: seed of crops and made pictures.
    """
    height, width, channels = (*shape[1:], shape[0]) if layout == "nchw" else shape
    make = _draw if height * width <= MAX_KEPT_PIXELS else _draw.__wrapped__
    pixels = make(number, (height, width), channels, seed, folder()).astype(np.float32)
    return pixels.transpose(2, 0, 1) if layout == "nchw" else pixels


@lru_cache(maxsize=64)
def _draw(number: int, size: Size, channels: int, seed: int, where: Path | None) -> Pixels:
    """Return a picture; kept, since a conversion asks for each several times."""
    rng = np.random.default_rng([seed, number])
    if channels == 1 and max(size) <= MAX_CHARACTER_SIDE and number % 4:
        image = _character(size, rng)
    elif number % 8 in _PAGES or (_is_line(size) and number % 2):
        image = _page(size, rng)
    else:
        image = _photograph(where, number, size, rng) if where else _make_picture(size, rng)
        if number % 4 == 1 or _is_line(size):
            _write(image, rng)
    pixels = np.asarray(image.convert("L" if channels == 1 else "RGB"))
    pixels = pixels.reshape(*size, -1)
    if channels <= pixels.shape[2]:
        return pixels
    brightness = np.asarray(image.convert("L")).reshape(*size, 1)
    return np.concatenate([pixels, brightness], axis=2)


def _is_line(size: Size) -> bool:
    """Return whether a picture is so wide that it is likely to hold a line of text."""
    return size[1] >= 3 * size[0]


@lru_cache(maxsize=32)
def _open(path: Path) -> Image.Image:
    with Image.open(path) as image:
        image.load()
        return image if image.mode == "RGB" else image.convert("RGB")


def _photograph(where: Path, number: int, size: Size, rng: np.random.Generator) -> Image.Image:
    """Cut a part out of a photograph; the first time the largest that has the right shape."""
    image = _open(where / _FILES[number % len(_FILES)])
    share = rng.uniform(0.5, 1.0) if number >= len(_FILES) else 1.0
    scale = share * min(image.width / size[1], image.height / size[0])
    width, height = min(size[1] * scale, image.width), min(size[0] * scale, image.height)
    x, y = rng.uniform(0, 1, 2) * (image.width - width, image.height - height)
    box = (x, y, min(x + width, image.width), min(y + height, image.height))
    part = image.resize(size[::-1], Image.Resampling.BICUBIC, box=box, reducing_gap=3.0)
    return part.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if number % 2 else part


def _make_picture(size: Size, rng: np.random.Generator) -> Image.Image:
    """Make a picture: a ground and shapes on it that have textures of their own."""
    pixels = _texture(size, rng)
    largest = max(size) / 2
    radii = largest * (4 / max(largest, 4)) ** rng.uniform(0, 1, (SHAPES, 2))
    for radius in radii[np.argsort(-radii.prod(axis=1), kind="stable")]:
        _cover(pixels, radius, rng)
    noisy = pixels + rng.normal(0, rng.uniform(0, 4), pixels.shape)
    return Image.fromarray(np.clip(np.rint(noisy), 0, 255).astype(np.uint8))


def _texture(size: Size, rng: np.random.Generator) -> Floats:
    """Make a texture whose amplitudes fall with the frequency, as in photographs, [H,W,3].

    D. J. Field, "Relations between the statistics of natural images and the response
    properties of cortical cells", J. Opt. Soc. Am. A, 1987.
    """
    fall = rng.uniform(0.9, 1.5)
    rows, columns = np.fft.fftfreq(size[0])[:, None], np.fft.rfftfreq(size[1])[None]
    amplitude = 1 / np.maximum(np.hypot(rows, columns), 1 / max(size)) ** fall
    grey = np.fft.irfft2(amplitude * np.exp(2j * np.pi * rng.random(amplitude.shape)), s=size)
    grey *= rng.uniform(15, 70) / max(float(grey.std()), 1e-9)
    return np.asarray(_shade(rng) + grey[..., None] * rng.uniform(0.7, 1.0, 3), np.float32)


def _shade(rng: np.random.Generator) -> NDArray[np.float64]:
    """Return a colour; most things are rather grey."""
    return np.clip(rng.uniform(0, 255) + rng.normal(0, 30, 3), 0, 255)


def _cover(pixels: Floats, radius: NDArray[np.float64], rng: np.random.Generator) -> None:
    """Draw a rectangle or an ellipse with a gradient or a texture, in place."""
    centre = rng.uniform(0, 1, 2) * pixels.shape[:2]
    low = np.maximum(centre - radius, 0).astype(int)
    high = np.ceil(centre + radius).astype(int)
    area = pixels[low[0] : high[0], low[1] : high[1]]
    if not area.size:
        return
    rows, columns = np.mgrid[: area.shape[0], : area.shape[1]].astype(np.float32)
    slope = rng.normal(0, 60, 2) / area.shape[:2]
    inside = _shade(rng) + (slope[0] * rows + slope[1] * columns)[..., None]
    if rng.uniform() < 0.3:
        inside = inside + _texture(area.shape[:2], rng) - 127.5
    row_term = ((rows + low[0] - centre[0]) / radius[0]) ** 2
    column_term = ((columns + low[1] - centre[1]) / radius[1]) ** 2
    covered = (row_term + column_term <= 1) | (rng.uniform() < 0.4)
    area[covered] = inside[covered]


def _page(size: Size, rng: np.random.Generator) -> Image.Image:
    """Make a page of text, or a line of it: dark on a light ground, or the other way round."""
    is_dark = bool(rng.uniform() < 0.25)
    paper = (252, 252, 250) if rng.uniform() < 0.5 else _color(rng, dark=is_dark)
    is_dark = is_dark and sum(paper) < 3 * 128
    image = Image.new("RGB", size[::-1], paper)
    draw, top = ImageDraw.Draw(image), 0.03 * size[0]
    while top < 0.95 * size[0]:
        share = rng.uniform(0.6, 0.85) if _is_line(size) else rng.uniform(0.03, 0.1)
        height = max(6.0, share * size[0])
        words = " ".join(_WORDS[int(k)] for k in rng.integers(0, len(_WORDS), 6))
        x = rng.uniform(0.0, 0.15) * size[1]
        ink = _color(rng, dark=not is_dark)
        draw.text((x, top), words, font=ImageFont.load_default(height), fill=ink)
        top += height * rng.uniform(1.2, 2.2)
    return image


def _character(size: Size, rng: np.random.Generator) -> Image.Image:
    """Make a picture of one letter or digit: mostly light on dark, with full contrast."""
    scale = 4  # drawn larger, so that its edges are grey
    image = Image.new("L", (scale * size[1], scale * size[0]), 0)
    draw, height = ImageDraw.Draw(image), scale * size[0] * rng.uniform(0.7, 1.05)
    letters = "0123456789" * 3 + "ABCDEFGHKMNPRSTXYZabdefghknqrt"
    letter = letters[int(rng.integers(len(letters)))]
    font = ImageFont.load_default(height)
    x_min, y_min, x_max, y_max = draw.textbbox((0, 0), letter, font=font)
    x = (image.width - x_max - x_min) / 2 + rng.uniform(-0.1, 0.1) * image.width
    y = (image.height - y_max - y_min) / 2 + rng.uniform(-0.1, 0.1) * image.height
    draw.text((x, y), letter, font=font, fill=255, stroke_width=int(rng.integers(0, scale)))
    small = image.resize(size[::-1], Image.Resampling.BOX)
    return small if rng.uniform() < 0.8 else small.point(lambda value: 255 - value)


def _write(image: Image.Image, rng: np.random.Generator) -> None:
    """Write some words on a picture, large and small, light and dark."""
    draw, height = ImageDraw.Draw(image), image.height
    lines = 1 if _is_line((height, image.width)) else 5
    for line in range(lines):
        share = rng.uniform(0.55, 0.85) if lines == 1 else rng.uniform(0.04, 0.14)
        font = ImageFont.load_default(max(6.0, share * height))
        word = _WORDS[int(rng.integers(len(_WORDS)))]
        top = height * ((line + 0.5) / lines) - 0.6 * share * height
        x = rng.uniform(0.02, 0.3) * image.width
        if rng.uniform() < 0.5:  # as on a sign
            box = draw.textbbox((x, top), word, font=font)
            draw.rectangle(box, fill=_color(rng, dark=False))
            draw.text((x, top), word, font=font, fill=_color(rng, dark=True))
        else:
            draw.text((x, top), word, font=font, fill=_color(rng, dark=bool(line % 2)))


def _color(rng: np.random.Generator, *, dark: bool) -> tuple[int, ...]:
    values = rng.integers(0, 90, 3) if dark else rng.integers(170, 256, 3)
    return tuple(int(value) for value in values)


SAMPLES = 32
MIN_SIDE = 8  # pixels of an image
UNKNOWN_NORMALIZATION = "normalization unknown"  # end of a description
MIN_GREY_SIDE = 16  # side of a grey image that is not square: a narrower input is a spectrum


def open_synthetic(
    inputs: Sequence[InputSpec], preprocess: Preprocess, limit: int, seed: int
) -> Samples:
    """Open 32 samples that depend on the options alone.

    Inputs of rank 4 that look like images get pictures, normalized by ``preprocess``; without
    it, to -1..1, and integers whole pixels. Other float inputs get a normal distribution
    (0, 1), other integers and booleans 0 or 1, which every vocabulary and mask has.

    Raises:
        CalibrationError: an input whose shape is not fixed beyond its first axis, or that holds no
            numbers, or integers that are not to be whole pixels.
    """
    shapes = [_fixed_shape(spec) for spec in inputs]
    pixels = normalization_of(inputs[0], preprocess) if reads_images(inputs) else None

    def load(k: int) -> Feed:
        return {
            spec.name: _make(spec, shape, preprocess, k, [seed, k, place])
            for place, (spec, shape) in enumerate(zip(inputs, shapes, strict=True))
        }

    number = min(SAMPLES, limit)
    description = f"synthetic, seed {seed}"
    if reads_images(inputs):
        source = "built-in photographs" if folder() else "made-up pictures"
        description = f"{source}, {pixels.name if pixels else UNKNOWN_NORMALIZATION}"
    is_made_up, indices = pixels is None or folder() is None, tuple(range(number))
    return Samples(load, indices, description, synthetic=is_made_up, builtin=True)


def reads_images(inputs: Sequence[InputSpec]) -> bool:
    """Return whether a model has one input, which looks like images."""
    return len(inputs) == 1 and image_layout(inputs[0]) is not None


def image_layout(spec: InputSpec) -> str | None:
    """Return ``nchw`` or ``nhwc`` of an input that looks like images, else None."""
    if spec.dtype.kind != "f" and not (spec.is_quantity and spec.dtype.kind in "iu"):
        return None
    shape = tuple(n or 1 for n in spec.lengths)
    if len(shape) != 4:
        return None
    for layout, channels, sides in (("nchw", 1, shape[2:]), ("nhwc", 3, shape[1:3])):
        is_grey = shape[channels] == 1 and sides[0] != sides[1]
        minimum = MIN_GREY_SIDE if is_grey else MIN_SIDE
        if shape[channels] in IMAGE_CHANNELS and min(sides) >= minimum:
            return layout
    return None


def _make(
    spec: InputSpec, shape: tuple[int, ...], keys: Preprocess, number: int, seeds: Sequence[int]
) -> Array:
    rng = np.random.default_rng(seeds)
    layout = image_layout(replace(spec, shape=shape))
    if layout is None and spec.dtype.kind != "f":
        return np.asarray(rng.integers(0, 2, shape), spec.dtype)
    if layout is None:
        return np.asarray(rng.standard_normal(shape), spec.dtype)
    axis = 1 if layout == "nchw" else 3
    normalization = normalization_of(spec, keys) or SIGNED
    numbers = range(number * shape[0], (number + 1) * shape[0])
    batch = np.stack([draw(shape[1:], layout, k, seed=seeds[0]) for k in numbers])
    if keys.color == "bgr" and shape[axis] == len("bgr"):
        batch = np.flip(batch, axis)
    return np.ascontiguousarray(normalization.apply(batch, axis)).astype(spec.dtype)


def _fixed_shape(spec: InputSpec) -> tuple[int, ...]:
    if spec.dtype.kind not in "biuf":
        raise CalibrationError(f"input {spec.name!r}: cannot make up values of {spec.dtype}")
    lengths = (1, *spec.lengths[1:]) if spec.lengths[:1] == (None,) else spec.lengths
    open_axes = [axis for axis, length in enumerate(lengths) if length is None]
    if spec.shape is None or open_axes:
        subject = f"dimension {open_axes[0]} of {spec.shape_text}" if open_axes else "its rank"
        example = ",".join("?" if n is None else str(n) for n in lengths) or "..."
        raise CalibrationError(
            f"input {spec.name!r}: {subject} is not fixed, so no samples can be made up",
            hint=f"give --input-shape {spec.name}={example}",
        )
    return tuple(n or 1 for n in lengths)
