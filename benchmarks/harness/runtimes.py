"""Layers of converted models, each alone, on other runtimes.

The models are in ``samples`` or arguments.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import npuconv
from harness.commands import ROOT
from npuconv.errors import NpuconvError

sys.path.insert(0, str(ROOT / "tests"))

from support.judges import JUDGES, READS, Verdict, is_installed, judged

# Extents that models leave open, by name.
SHAPES = {
    "mtcnn_pnet": {"input_1": [1, 64, 64, 3]},
    "ppocr_cls_v2": {"x": [1, 3, 48, 192]},
    "ppocrv4_rec": {"x": [1, 3, 48, 160]},
    "ppocrv4_det": {"x": [1, 3, 320, 320]},
    "bodypix_mnv1_050_s16": {"input": [1, 225, 225, 3]},
    "zerodce_mdturp": {"input": [1, 3, 128, 128]},
    "silero_vad_op15": {"input": [1, 576], "state": [2, 1, 128]},
}
COLUMNS = ["model", "layers", "values", *(f"{j}, {form}" for j in JUDGES for form in READS[j])]


def model_paths(more: Sequence[Path]) -> list[Path]:
    """Return the sample models and more."""
    return [*sorted(ROOT.glob("samples/*/model.onnx")), *more]


def name_of(path: Path) -> str:
    """Return the first cell of a model: its folder's name for a model.onnx, else the file's."""
    return path.resolve().parent.name if path.stem == "model" else path.stem


def line(cells: Sequence[str]) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cells)} |"


def refusal(path: Path, error: NpuconvError) -> str:
    """Return the cell of a model that is not converted; the row has its name, wherever it lies."""
    reason = error.message.partition(f"{path.name}: ")[2] or error.message
    return f"not converted: {reason.split(' (')[0]}"


def print_head(columns: Sequence[str]) -> None:
    """Print the head of a table."""
    print(line(columns))
    print(line(["---"] * len(columns)), flush=True)


def main(arguments: list[str]) -> None:
    """Convert each model in each form, judge its layers, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path, help="besides samples/*/model.onnx")
    options = parser.parse_args(arguments)
    missing = [judge for judge in JUDGES if not is_installed(judge)]
    if missing:
        sys.exit(f"not installed: {', '.join(missing)}: pip install 'npuconv[runtimes]'")
    print_head(COLUMNS)
    for path in model_paths(options.models):
        print(line([name_of(path), *_cells(path)]), flush=True)


def _cells(path: Path) -> list[str]:
    """Return the numbers of layers and values, and the verdict of each judge on each form."""
    data = path.parent / "calibration.npz"
    verdicts_by_judge: dict[tuple[str, str], Verdict] = {}
    for form in ("qoperator", "qdq"):
        try:
            model = npuconv.convert(
                path,
                calibration=str(data) if data.exists() else None,
                format=form,
                input_shape=SHAPES.get(name_of(path), {}),
                max_samples=2,
                verify=False,
            ).model
        except NpuconvError as error:
            return [refusal(path, error), *[""] * (len(COLUMNS) - 2)]
        verdicts_by_judge |= {(j, form): judged(model, j) for j in JUDGES if form in READS[j]}
    first = next(iter(verdicts_by_judge.values()))
    verdicts = [_cell(verdicts_by_judge[judge, form]) for judge in JUDGES for form in READS[judge]]
    return [str(first.layers), f"{first.values:,}", *verdicts]


def _cell(verdict: Verdict) -> str:
    """Return how many values differ, and by how many steps at most."""
    refused = f"{verdict.refused} layers refused, " if verdict.refused else ""
    return f"{refused}{verdict.differing:,}" + (
        f" by {verdict.furthest}" if verdict.differing else ""
    )
