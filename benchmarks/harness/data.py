"""Photographs and labelled arrays, cut into samples that never share a photograph.

A role is the purpose of samples: ``calib`` (calibration), ``score`` (SQNR and cosine),
``others`` (more samples like ``score``, for agreement of the best class only) or
``foreign`` (SQNR on every photograph of another collection).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image

from harness.feeds import Array

Role = Literal["calib", "score", "others", "foreign"]
COUNTS = {"calib": 32, "score": 16}
# Every third photograph is kept for scoring, so that both sides have each source.
THIRDS = 3
FOLDS = 4 * THIRDS  # photographs in the order of their names, then in three other orders
USUAL = THIRDS - 1
_fold = USUAL
_PHOTOS = "*.jpg"


@dataclass(frozen=True)
class Pixels:
    """Conversion of pixels to numbers; the defaults give 0..1, RGB, channels first.

    Attributes:
        mean: subtracted, in units of 0..255, in the order of the input's channels.
        std: divided by.
        color: order of the channels, or ``gray`` for one.
        layout: of the model's input.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (255.0,)
    color: Literal["rgb", "bgr", "gray"] = "rgb"
    layout: Literal["nchw", "nhwc"] = "nchw"

    def __call__(self, image: Image.Image) -> Array:
        """One image as float32, without a batch axis."""
        pixels = np.asarray(image.convert("L" if self.color == "gray" else "RGB"), np.float32)
        pixels = pixels[..., None] if self.color == "gray" else pixels
        pixels = pixels[..., ::-1] if self.color == "bgr" else pixels
        values = (pixels - np.array(self.mean, np.float32)) / np.array(self.std, np.float32)
        return np.ascontiguousarray(values if self.layout == "nhwc" else values.transpose(2, 0, 1))


SIGNED = Pixels(mean=(127.5,), std=(127.5,))
SIGNED_BGR = Pixels(mean=(127.5,), std=(127.5,), color="bgr")
SIGNED_NHWC = Pixels(mean=(127.5,), std=(127.5,), layout="nhwc")
IMAGENET = Pixels(mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375))


def use_fold(number: int) -> None:
    """Score on another third of photographs, words and rows, with other dice everywhere.

    Whatever was settled while looking at one fold is judged by another.
    """
    global _fold
    _fold = number


def fold() -> int:
    """Number of the part, from 0."""
    return _fold


def third() -> int:
    """Number of the third that is scored on, 0..2."""
    return _fold % THIRDS


def in_order(items: list[Any]) -> list[Any]:
    """All in the order that thirds are taken from."""
    turn = _fold // THIRDS
    return random.Random(f"order {turn}").sample(items, len(items)) if turn else items


def dice(*seeds: object) -> random.Random:
    """Numbers that depend on nothing but the seeds and the fold, in every version of Python."""
    of_fold = () if _fold == USUAL else (f"fold {_fold}",)
    return random.Random("/".join(map(str, (*of_fold, *seeds))))


@lru_cache(maxsize=64)
def _open(path: Path) -> Image.Image:
    return Image.open(path).convert("RGB")


def photos(folder: Path, role: Role) -> list[Path]:
    """Return the photographs of a role: two thirds for calibration, the others for scoring."""
    paths = in_order(sorted((folder / "photos").glob(_PHOTOS)))
    if not paths:
        raise FileNotFoundError(f"{folder / 'photos'}: no {_PHOTOS}")
    if role == "foreign":
        return paths
    scored = paths[third() :: THIRDS]
    return [path for path in paths if path not in scored] if role == "calib" else scored


def crop_photo(folder: Path, role: Role, k: int, size: tuple[int, int]) -> Image.Image:
    """Return crop number k: first the largest of every photograph, then random smaller crops.

    Args:
        folder: the shared data.
        role: which photographs.
        k: number of the sample; ``others`` go on where ``score`` ends.
        size: height and width.
    """
    files = photos(folder, role)
    k += COUNTS["score"] if role == "others" else 0
    image = _open(files[k % len(files)])
    turn = k // len(files)
    draw = dice("crop", role, k)
    share = draw.uniform(0.5, 1.0) if turn else 1.0
    scale = share * min(image.width / size[1], image.height / size[0])
    # Rounding must not make it larger than the photograph.
    width, height = min(size[1] * scale, image.width), min(size[0] * scale, image.height)
    left = (image.width - width) * (draw.random() if turn else 0.5)
    top = (image.height - height) * (draw.random() if turn else 0.5)
    box = (left, top, min(left + width, image.width), min(top + height, image.height))
    return image.resize(size[::-1], Image.Resampling.BICUBIC, box=box)


def photo_batch(
    folder: Path,
    role: Role,
    count: int,
    size: tuple[int, int],
    pixels: Callable[[Image.Image], Array],
) -> Array:
    """Crops as inputs, [count, ...]."""
    return np.stack([pixels(crop_photo(folder, role, k, size)) for k in range(count)])


def rows(folder: Path, file: str, role: Role, count: int) -> Array:
    """The rows of a labelled set that belong to a role: one after the other, never shared."""
    first = {"calib": 0, "score": COUNTS["calib"], "others": sum(COUNTS.values())}.get(role, 0)
    with np.load(folder / file) as arrays:
        samples = arrays["x"]
    start = (third() + 1) % THIRDS * len(samples) // THIRDS
    order = np.roll(in_order(list(range(len(samples)))), -start)[first : first + count]
    return np.asarray(samples[order])
