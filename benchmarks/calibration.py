"""Costs of calibration: how memory and time of npuconv convert grow with the samples.

    python benchmarks/calibration.py [--models NAME...] [--runs 3]

Samples lie in one .npz, and again in a directory of .npz files of 16 samples each; of both,
one sample after the other is read. "A sample more" is the slope between the
fewest and the most samples, by that of a process that only runs the float model. Everything
is a whole process; ratios are medians of neighbouring runs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from recipes.contenders import Contender, ours
from recipes.data import COUNTS
from recipes.measure import Measured, measure
from recipes.models import Feeds, Recipe, recipes
from recipes.sets import Sets, write

ROOT = Path(__file__).resolve().parent.parent
_FEW, _MANY = 16, 256
_SIZES = (_FEW, 64, _MANY)
_MODELS = ("ppocrv4_det", "yunet_n_320", "ppocr_cls_v2")


def make_samples(recipe: Recipe, model: Path, data: Path, folder: Path) -> None:
    """Write one .npz a size, and a directory of small ones a size."""
    feeds = recipe.make(data, model, "calib", _MANY)
    for size in {*_SIZES, COUNTS["calib"]}:
        write(folder / f"{size}.npz", _part(feeds, 0, size))
        parts = folder / str(size)
        parts.mkdir()
        for first in range(0, size, _FEW):
            write(parts / f"{first:04}.npz", _part(feeds, first, first + _FEW))


def _part(feeds: Feeds, first: int, last: int) -> Feeds:
    return {name: np.ascontiguousarray(array[first:last]) for name, array in feeds.items()}


class Costs:
    """Measures one model; every run is a process of its own."""

    def __init__(self, recipe: Recipe, model: Path, folder: Path) -> None:
        self._recipe, self._folder = recipe, folder
        self._sets = Sets(model, folder, folder, folder, None)
        self._who: Contender = ours("")[0]

    def convert(self, samples: str) -> Measured:
        """Npuconv on a file or directory of samples."""
        sets = replace(self._sets, calib=self._folder / samples)
        done = measure(self._who.line(self._recipe.arguments, sets, self._folder / "out.onnx"))
        if done.code:
            raise SystemExit(f"convert failed: {done.error}")
        return done

    def bare(self, size: int) -> Measured:
        """The float model alone."""
        path = self._folder / f"{size}.npz"
        model = str(self._sets.model)
        return measure([sys.executable, "-m", "recipes.run_float", model, str(path)])

    def memory(self, template: str, runs: int) -> list[float]:
        """Peak MiB at every size."""
        peaks = [[self.convert(template.format(size)).mib for _ in range(runs)] for size in _SIZES]
        return [statistics.median(peak) for peak in peaks]

    def slope(self) -> float:
        """Seconds of a sample more, by those of the float model."""
        more = self.convert(str(_MANY)).seconds - self.convert(str(_FEW)).seconds
        return more / (self.bare(_MANY).seconds - self.bare(_FEW).seconds)

    def whole(self) -> float:
        """Wall time at 32 samples, by that of the float model."""
        size = COUNTS["calib"]
        return self.convert(f"{size}.npz").seconds / self.bare(size).seconds


def examine(name: str, shared: Path, runs: int) -> str:
    """A row of the table."""
    recipe = recipes()[name]
    model = shared / "models" / recipe.model / "model.onnx"
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        make_samples(recipe, model, shared / "data", folder)
        costs = Costs(recipe, model, folder)
        costs.convert(str(_FEW))  # reads the files into memory; does not count
        size = (folder / f"{_MANY}.npz").stat().st_size / 2**20
        peaks = [costs.memory(template, runs) for template in ("{}", "{}.npz")]
        slope = statistics.median(costs.slope() for _ in range(runs))
        whole = statistics.median(costs.whole() for _ in range(runs))
    cells = [" / ".join(f"{mib:.0f}" for mib in peak) for peak in peaks]
    cells = [name, *cells, f"{size:.0f}", f"{slope:.2f}", f"{whole:.2f}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(recipes()), default=_MODELS)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    arguments = parser.parse_args()
    if not (arguments.shared / "models").is_dir():
        raise SystemExit(f"{arguments.shared}: no models here; name their folder with --shared")
    sizes = " / ".join(map(str, _SIZES))
    names = ["model", f"MiB at {sizes} samples, directory", "MiB, one .npz"]
    names += [f"MiB of {_MANY} samples", "a sample more / float", "32 samples / float process"]
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}", flush=True)
    for name in arguments.models:
        print(examine(name, arguments.shared, arguments.runs), flush=True)


if __name__ == "__main__":
    main()
