"""Layers of converted models, each alone, on other runtimes: a table of docs/runtimes.md.

Models are those of ``samples`` and those given as arguments.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
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
_END = "<!-- end -->\n"
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


def write(page: Path, maker: str, columns: Sequence[str], rows: Mapping[str, str]) -> None:
    """Write a table into a page; rows of models that were not run stay as they are.

    Args:
        page: with the table between two comments.
        maker: command in the first comment.
        columns: head of the table.
        rows: by the first cell.
    """
    before, behind_mark = page.read_text("utf-8").split(f"<!-- made by {maker} -->\n")
    table, _, after = behind_mark.partition(_END)
    old = {row.split("|")[1].strip(): row for row in table.strip().splitlines()[2:]}
    head = [line(columns), line(["---"] * len(columns))]
    text = "\n".join([*head, *(old | rows).values()])
    page.write_text(f"{before}<!-- made by {maker} -->\n\n{text}\n\n{_END}{after}", "utf-8")


def main(arguments: list[str]) -> None:
    """Convert each model in each form, judge its layers, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path, help="besides samples/*/model.onnx")
    parser.add_argument("--write", action="store_true", help="the table into docs/runtimes.md")
    options = parser.parse_args(arguments)
    missing = [judge for judge in JUDGES if not is_installed(judge)]
    if missing:
        sys.exit(f"not installed: {', '.join(missing)}: pip install 'npuconv[runtimes]'")
    rows = {}
    for path in model_paths(options.models):
        name = name_of(path)
        rows[name] = line([name, *_cells(path)])
        print(rows[name], flush=True)
        if options.write:
            page = ROOT / "docs" / "runtimes.md"
            write(page, "benchmarks/targets.py runtimes", COLUMNS, rows)


def _cells(path: Path) -> list[str]:
    """Return how many layers and values there are, and what each judge says of each form."""
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
