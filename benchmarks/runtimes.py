"""Other runtimes compute each layer of each model alone: the table of docs/runtimes.md.

Run by ``make runtimes``. Models are those of ``samples`` and those given as arguments.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from recipes import judged as table

import npuconv
from npuconv.errors import NpuconvError

sys.path.insert(0, str(table.ROOT / "tests"))

from support.judges import JUDGES, READS, Verdict, is_installed, judged

COLUMNS = ["model", "layers", "values", *(f"{j}, {form}" for j in JUDGES for form in READS[j])]


def main() -> None:
    """Convert each model in each form, judge its layers, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path, help="besides samples/*/model.onnx")
    parser.add_argument("--write", action="store_true", help="the table into docs/runtimes.md")
    options = parser.parse_args()
    missing = [judge for judge in JUDGES if not is_installed(judge)]
    if missing:
        sys.exit(f"not installed: {', '.join(missing)}: pip install 'npuconv[runtimes]'")
    rows = {}
    for path in table.paths(options.models):
        name = table.name_of(path)
        rows[name] = table.line([name, *_cells(path)])
        print(rows[name], flush=True)
        if options.write:
            page = table.ROOT / "docs" / "runtimes.md"
            table.write(page, "benchmarks/runtimes.py", COLUMNS, rows)


def _cells(path: Path) -> list[str]:
    """Return how many layers and values there are, and what each judge says of each form."""
    data = path.parent / "calibration.npz"
    found: dict[tuple[str, str], Verdict] = {}
    for form in ("qoperator", "qdq"):
        try:
            model = npuconv.convert(
                path,
                calibration=str(data) if data.exists() else None,
                format=form,
                input_shape=table.SHAPES.get(table.name_of(path), {}),
                max_samples=2,
                verify=False,
            ).model
        except NpuconvError as error:
            return [table.refusal(path, error), *[""] * (len(COLUMNS) - 2)]
        found |= {(j, form): judged(model, j) for j in JUDGES if form in READS[j]}
    first = next(iter(found.values()))
    verdicts = [_cell(found[judge, form]) for judge in JUDGES for form in READS[judge]]
    return [str(first.layers), f"{first.values:,}", *verdicts]


def _cell(one: Verdict) -> str:
    """Return how many values differ, and by how many steps at most."""
    refused = f"{one.refused} layers refused, " if one.refused else ""
    return f"{refused}{one.differing:,}" + (f" by {one.furthest}" if one.differing else "")


if __name__ == "__main__":
    main()
