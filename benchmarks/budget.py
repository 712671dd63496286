"""What multiplications buy: SQNR of the int8 models against percent of extra MACs.

    python benchmarks/budget.py [--models NAME...] [--percent 0 5 10 20 50] [--work DIR]

The same samples as ``benchmarks/accuracy.py``: 32 to calibrate, 16 others that onnxruntime
scores the written models on. Nothing is chosen on those. Behind each figure stands what was
spent in truth, which is less where no layer fits the rest of the budget.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from recipes.data import FOLDS, USUAL, use_fold
from recipes.measure import measure
from recipes.models import Recipe, recipes
from recipes.scoring import score_files
from recipes.sets import Sets, prepare

ROOT = Path(__file__).resolve().parent.parent
PERCENTS = (0.0, 2.0, 5.0, 10.0, 20.0, 50.0)
MODELS = ("ppocrv4_det", "ppocrv4_rec", "ppocr_cls_v2", "ultraface_rfb320")


def examine(name: str, recipe: Recipe, sets: Sets, percents: list[float]) -> str:
    """One line of the table."""
    with tempfile.TemporaryDirectory() as folder:
        spent = [_convert(recipe, sets, p, Path(folder) / f"{p}.onnx") for p in percents]
        made = [path for path, _ in spent if path.exists()]
        scores = score_files(sets.model, sets.score, sets.others, recipe.top1, made)
    by_path = dict(zip(made, scores, strict=True))
    cells = [_cell(by_path[path].whole.sqnr, percent) if path in by_path else "refused"
             for path, percent in spent]  # fmt: skip
    return f"| {name} | {' | '.join(cells)} |"


def _convert(recipe: Recipe, sets: Sets, percent: float, target: Path) -> tuple[Path, float]:
    report = target.with_suffix(".json")
    line = [sys.executable, "-m", "npuconv", "convert", str(sets.model), "-o", str(target)]
    line += ["--calibration", str(sets.calib), "-q", "--report", str(report), *recipe.arguments]
    measure([*line, "--max-extra-macs", str(percent)])
    budget = json.loads(report.read_text())["quantization"]["budget"] if report.exists() else None
    return target, budget["extra_percent"] if budget else 0.0


def _cell(decibels: float, percent: float) -> str:
    return f"{decibels:.1f} ({percent:.1f})"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(recipes()), default=MODELS)
    parser.add_argument("--percent", nargs="+", type=float, default=PERCENTS)
    parser.add_argument(
        "--fold", type=int, choices=range(FOLDS), default=USUAL, help="which third is scored on"
    )
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--work", type=Path, help="keep sample sets here for the next run")
    arguments = parser.parse_args()
    use_fold(arguments.fold)
    heads = [f"{percent:g} %" for percent in arguments.percent]
    print(f"| dB (% spent) | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 1)}")
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.models:
            recipe = recipes()[name]
            sets = prepare(name, recipe, arguments.shared, arguments.work or Path(folder))
            print(examine(name, recipe, sets, list(arguments.percent)), flush=True)


if __name__ == "__main__":
    main()
