"""Trains and writes the sample models of ``samples/``.

``python tools/make_samples.py`` makes all files from fixed seeds;
``python tools/make_samples.py --check`` measures the existing files.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from samplekit.data import Split, load, with_shifts
from samplekit.evaluate import measure, run
from samplekit.export import to_model
from samplekit.models import SAMPLES, Sample
from samplekit.train import (
    cross_entropy,
    fit,
    fold_batch_norms,
    initialise,
    predict,
    squared_error,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from samplekit.layers import Layer

FILES = ("model.onnx", "calibration.npz", "evaluation.npz")
SIZE_LIMIT = 3_000_000
EXPORT_TOLERANCE = 1e-5


def train(sample: Sample, split: Split) -> list[Layer]:
    """The trained layers of ``sample``, ready for the export."""

    def progress(epoch: int, loss: float) -> None:
        if epoch in (1, sample.epochs) or epoch % 10 == 0:
            print(f"  epoch {epoch:3d}  loss {loss:.5f}", flush=True)

    layers = sample.build()
    initialise(layers, sample.seed)
    classifies = sample.task == "classify"
    loss = cross_entropy if classifies else squared_error
    data = with_shifts(*split.train) if classifies else split.train
    fit(layers, loss, data, epochs=sample.epochs, seed=sample.seed, progress=progress)
    return fold_batch_norms(layers) if sample.folds else layers


def write(sample: Sample, layers: list[Layer], split: Split, directory: Path) -> None:
    """Write the files of ``sample``; the same bytes for the same weights."""
    directory.mkdir(parents=True, exist_ok=True)
    model = to_model(layers, sample.interface)
    (directory / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
    name = sample.interface.source[0]
    inputs, labels = split.evaluation
    _save(directory / "calibration.npz", {name: split.calibration})
    _save(directory / "evaluation.npz", {name: inputs, "labels": labels})


def export_error(sample: Sample, layers: list[Layer], split: Split, directory: Path) -> float:
    """The largest difference between the written model and the trained layers."""
    inputs = split.evaluation[0]
    written = run(directory / "model.onnx", {sample.interface.source[0]: inputs})
    return float(np.abs(written - predict(layers, inputs)).max())


def make(sample: Sample, directory: Path) -> bool:
    """Train and write one sample; return whether the file computes the same as the layers."""
    print(f"{sample.name}: training", flush=True)
    start = time.monotonic()
    split = load(sample)
    layers = train(sample, split)
    write(sample, layers, split, directory)
    error = export_error(sample, layers, split, directory)
    print(f"  {time.monotonic() - start:.0f} s, export differs by at most {error:.1e}")
    return error <= EXPORT_TOLERANCE


def check(samples: Path) -> bool:
    """Measure the files below ``samples``; return whether all are accurate and small enough."""
    good, total = True, 0
    for sample in SAMPLES:
        directory = samples / sample.name
        missing = [name for name in FILES if not (directory / name).is_file()]
        if missing:
            print(f"{sample.name}: missing {', '.join(missing)}")
            good = False
            continue
        size = sum((directory / name).stat().st_size for name in FILES)
        value, text = measure(sample, directory)
        verdict = "ok" if value >= sample.floor else "TOO LOW"
        print(f"{sample.name}: {text}, {size / 1000:.0f} kB, {verdict}")
        good, total = good and value >= sample.floor, total + size
    print(f"total {total / 1000:.0f} kB of {SIZE_LIMIT / 1000:.0f} kB")
    return good and total < SIZE_LIMIT


def main(arguments: list[str] | None = None) -> int:
    """Make or check the samples; return the exit code."""
    parser = argparse.ArgumentParser(description="Train and write the sample models.")
    parser.add_argument("--out", type=Path, default=Path("samples"), help="where they are")
    parser.add_argument("--check", action="store_true", help="only measure the files there")
    options = parser.parse_args(arguments)
    exact = True
    if not options.check:
        for sample in SAMPLES:
            exact = make(sample, options.out / sample.name) and exact
    return 0 if check(options.out) and exact else 1


def _save(path: Path, arrays: dict[str, NDArray[Any]]) -> None:
    np.savez_compressed(path, allow_pickle=False, **arrays)


if __name__ == "__main__":
    sys.exit(main())
