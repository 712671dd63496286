"""TFLite files of real models: integers against LiteRT's reference kernels, places against Vela.

Run by ``make vela``, in an environment with ``ai-edge-litert`` and ``ethos-u-vela``. Each int8
operator runs alone on LiteRT, fed with our integers; then Vela compiles the file for
Ethos-U55-128, and where each operator runs is compared with the report.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper
from recipes import judged as table

import npuconv
from npuconv.errors import NpuconvError, UsageError
from npuconv.evaluate.vela import require
from npuconv.report import render
from npuconv.target import Target

sys.path += [str(table.ROOT / "tests"), str(table.ROOT / "tools")]

from support.tflite_files import differing_layers
from vela import Compiled, compile_file

COLUMNS = ("model", "layers", "that differ", "NPU", "CPU", "not where check says", "Mcycles")


@dataclass(frozen=True)
class Row:
    """Results of a model; None for what is not installed."""

    name: str
    layers: int | None = None
    differing: int | None = None
    compiled: Compiled | None = None
    refused: str = ""

    def cells(self) -> list[str]:
        """Return the cells of the table."""
        if self.refused:
            return [self.name, self.refused, *[""] * (len(COLUMNS) - 2)]
        both = ["" if n is None else str(n) for n in (self.layers, self.differing)]
        if self.compiled is None:
            return [self.name, *both, *[""] * (len(COLUMNS) - 3)]
        made = self.compiled.made
        if made.error:
            return [self.name, *both, "", "", f"not compiled: {made.error}", ""]
        wrong = [f"{n} {code} on the CPU" for code, n in self.compiled.left.items()]
        wrong += [f"{n} {code} on the NPU" for code, n in self.compiled.gained.items()]
        places = [str(made.npu_operators), str(made.cpu_operators), ", ".join(wrong) or "none"]
        return [self.name, *both, *places, f"{(made.cycles or 0) / 1e6:.2f}"]


def judged(path: Path, folder: Path, command: list[str] | None) -> Row:
    """Convert a model, and compare its file with LiteRT and Vela where they are installed."""
    name = table.name_of(path)
    try:
        made = npuconv.convert(
            path,
            "ethos-u55",
            input_shape=table.SHAPES.get(name, {}),
            fail_on="never",
            max_samples=2,
        )
    except NpuconvError as error:
        return Row(name, refused=table.refusal(path, error))
    compared = wrong = compiled = None
    if importlib.util.find_spec("ai_edge_litert") is not None:
        compared, names = differing_layers(made.model, _feeds(made.model))
        wrong = len(names)
    if command is not None:
        file = folder / f"{name}.tflite"
        made.save(file)
        file.with_suffix(".report.json").write_text(render(made.report, "json"), "utf-8")
        compiled = compile_file(command, file)
    return Row(name, compared, wrong, compiled)


def _feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return numbers from 0 to 1 for every input."""
    rng, feeds = np.random.default_rng(0), {}
    for info in model.graph.input:
        kind = info.type.tensor_type
        shape = [dim.dim_value or 1 for dim in kind.shape.dim]
        feeds[info.name] = rng.random(shape).astype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return feeds


def main() -> None:
    """Judge the models, print rows, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--folder", type=Path, default=table.ROOT / "build" / "vela")
    parser.add_argument("--write", action="store_true", help="the table into docs/tflite.md")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    try:
        command = require(Target.load("ethos-u55").next_command, "tflite")
    except UsageError:
        command = None
    rows = {}
    for path in table.paths(options.models):
        row = judged(path, options.folder, command)
        rows[row.name] = table.line(row.cells())
        print(rows[row.name], flush=True)
    if options.write:
        page = table.ROOT / "docs" / "tflite.md"
        table.write(page, "benchmarks/tflite_files.py", COLUMNS, rows)


if __name__ == "__main__":
    main()
