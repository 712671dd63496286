"""Crossings of the shared models on real chips, without and with the operators they list.

    python benchmarks/coverage.py [--target NAME...] [--models NAME...]

For each target the first figures are those of the same file without the operators that compute
in int8 beside convolutions: only what moves or compares integers runs on the device then.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import yaml
from recipes.models import Recipe, recipes
from whole_network import COMPUTED

from npuconv.cli.coverage import Cell, cover
from npuconv.target import Target

ROOT = Path(__file__).resolve().parent.parent


def without(name: str, folder: Path) -> str:
    """Write a built-in target without the operators that compute; return its path."""
    text = yaml.safe_load(Target.load(name).yaml)
    for op in (*COMPUTED, "Gemm", "MatMul"):
        text["operators"].pop(op, None)
    path = folder / f"{name}-convolutions.yaml"
    path.write_text(yaml.safe_dump(text, sort_keys=False), "utf-8")
    return str(path)


def shown(cell: Cell) -> str:
    """Return the tensors that cross, and their MiB."""
    moved = cell.crossing_bytes
    return f"{cell.crossings}, {'?' if moved is None else f'{moved / 2**20:.2f}'}"


def row(recipe: Recipe, shared: Path, targets: list[str]) -> list[str]:
    """Return the columns of one model, two for each target."""
    path = shared / "models" / recipe.model / "model.onnx"
    shapes = {name: list(shape) for name, shape in recipe.shapes.items()}
    # The form in which operators are int8, whatever the compiler of the chip reads.
    cells = cover([str(path)], targets, input_shape=shapes, format="qdq").cells
    return [shown(cell) for cell in cells]


def main() -> None:
    """Check and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    every = {recipe.model: recipe for recipe in recipes().values()}
    parser.add_argument("--models", nargs="+", choices=list(every), default=list(every))
    parser.add_argument("--target", nargs="+", default=["rknn", "ethos-u55"])
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    arguments = parser.parse_args()
    heads = [f"{name}, {what}" for name in arguments.target for what in ("convolutions", "all")]
    print(f"| model | {' | '.join(heads)} |\n|{'---|' * (len(heads) + 1)}")
    with tempfile.TemporaryDirectory() as made:
        pairs = [(without(name, Path(made)), name) for name in arguments.target]
        targets = [one for pair in pairs for one in pair]
        for name in arguments.models:
            columns = row(every[name], arguments.shared, targets)
            print(f"| {name} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()
