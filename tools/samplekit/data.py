"""The digits, split once for all samples, and the arrays each task reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits  # type: ignore[import-untyped, unused-ignore]

from samplekit.layers import Array, pad_image

if TYPE_CHECKING:
    from samplekit.models import Sample

SPLIT_SEED = 20
EVALUATION = 400
CALIBRATION = 64


@dataclass(frozen=True)
class Split:
    """Inputs and targets, of the training and of the evaluation images."""

    train: tuple[Array, NDArray[Any]]
    evaluation: tuple[Array, NDArray[Any]]

    @property
    def calibration(self) -> Array:
        """The training images that calibrate a quantizer."""
        return self.train[0][:CALIBRATION]


def load(sample: Sample) -> Split:
    """The digits as ``sample`` sees them."""
    bunch: Any = load_digits()
    images = (bunch.images / 16).astype(np.float32)[:, None]
    labels = bunch.target.astype(np.int64)
    order = np.random.default_rng(SPLIT_SEED).permutation(len(images))
    images, labels = images[order], labels[order]
    inputs, targets = (halve(images), images) if sample.task == "upscale" else (images, labels)
    return Split(
        (inputs[EVALUATION:], targets[EVALUATION:]), (inputs[:EVALUATION], targets[:EVALUATION])
    )


def halve(images: Array) -> Array:
    """Images at half the resolution, by the mean of 2 x 2 pixels."""
    batch, channels, rows, columns = images.shape
    tiles = images.reshape(batch, channels, rows // 2, 2, columns // 2, 2)
    return np.asarray(tiles.mean(axis=(3, 5)), np.float32)


def with_shifts(images: Array, labels: NDArray[np.int64]) -> tuple[Array, NDArray[np.int64]]:
    """The images, and each again moved by one pixel in every direction."""
    rows, columns = images.shape[2:]
    framed = pad_image(images, (1, 1, 1, 1))
    moves = ((1, 1), (0, 1), (2, 1), (1, 0), (1, 2))
    moved = [framed[:, :, top : top + rows, left : left + columns] for top, left in moves]
    return np.concatenate(moved), np.tile(labels, len(moves))
