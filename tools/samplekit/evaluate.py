"""Runs sample files in onnxruntime and measures how good they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort  # type: ignore[import-untyped, unused-ignore]
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pathlib import Path

    from samplekit.layers import Array
    from samplekit.models import Sample


def run(model: Path, feed: dict[str, Array]) -> Array:
    """The first output of ``model``."""
    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feed)[0], np.float32)


def psnr(image: Array, target: Array) -> float:
    """Peak signal to noise ratio in dB, for values of 0 .. 1."""
    return float(-10 * np.log10(np.square(image - target).mean(dtype=np.float64)))


def nearest(images: Array) -> Array:
    """Images at twice the resolution, by repeating pixels."""
    return images.repeat(2, axis=2).repeat(2, axis=3)


def score(sample: Sample, inputs: Array, output: Array, labels: NDArray[Any]) -> tuple[float, str]:
    """Return the figure that ``sample.floor`` limits, and a text for people."""
    if sample.task == "classify":
        accuracy = float((output.argmax(axis=1) == labels).mean())
        return accuracy, f"accuracy {accuracy:.4f} on {len(labels)} images"
    reached, plain = psnr(output, labels), psnr(nearest(inputs), labels)
    return reached - plain, f"PSNR {reached:.2f} dB, nearest neighbour {plain:.2f} dB"


def measure(sample: Sample, directory: Path) -> tuple[float, str]:
    """The score of the files in ``directory``."""
    name = sample.interface.source[0]
    with np.load(directory / "evaluation.npz", allow_pickle=False) as arrays:
        inputs, labels = arrays[name], arrays["labels"]
    output = run(directory / "model.onnx", {name: inputs})
    return score(sample, inputs, output, labels)
