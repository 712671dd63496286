"""Verdicts of vendors' tools on samples, shared models and exports, converted for them.

A row has, for each tool: the SQNR of the int8 model, and the verdict; if it is accepted, the SQNR
in the simulator of the tool and the largest difference from the int8 model in steps.
A tool that is not installed is left out with a sentence; docs/verify.md has its environment.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import onnx

import npuconv
from harness.commands import ROOT, SHARED
from harness.feeds import Array
from harness.models import recipes
from harness.runtimes import line, print_head
from npuconv.errors import NpuconvError, UsageError
from npuconv.vendors.tool import VendorTool

# Tool, target, form of the file; RKNN-Toolkit2 quantizes a float file with the samples.
COLUMNS = (("qnn", "qnn-htp", "qdq"), ("rknn", "rknn", "qdq"), ("rknn", "rknn", "float"))
_TESTED = 8  # samples in the simulator, which is slow
_LONGEST = 60  # characters of a reason


def feeds_of(name: str, shared: Path) -> tuple[Path, dict[str, Array], dict[str, Array]]:
    """Return a model, its calibration samples, and other samples."""
    sample, export = ROOT / "samples" / name, shared / "exporters" / f"{name}.onnx"
    model, parts = (
        sample / "model.onnx",
        [sample / f"{n}.npz" for n in ("calibration", "evaluation")],
    )
    if export.is_file():
        model, parts = export, [export.with_suffix(f".{n}.npz") for n in ("cal", "test")]
    elif not sample.is_dir():
        recipe = recipes()[name]
        model = shared / "models" / recipe.model / "model.onnx"
        calibration = recipe.make(shared / "data", model, "calib", 24)
        return model, calibration, recipe.make(shared / "data", model, "score", _TESTED)
    first, second = (dict(np.load(part)) for part in parts)
    return model, first, {key: second[key][:_TESTED] for key in first}


def shapes_of(model: Path, samples: dict[str, Array]) -> dict[str, tuple[int, ...]]:
    """Return the input shapes with one sample; the first axis of an array has the samples."""
    ranks = {
        value.name: len(value.type.tensor_type.shape.dim)
        for value in onnx.load(model, load_external_data=False).graph.input
    }
    batch = {name: (1,) * (ranks[name] == array.ndim) for name, array in samples.items()}
    return {name: (*batch[name], *array.shape[1:]) for name, array in samples.items()}


def cell(name: str, shared: Path, vendor: str, target: str, form: str) -> str:
    """Convert a model for the target of a tool; return its verdict."""
    try:
        model, calibration, samples = feeds_of(name, shared)
        shapes = shapes_of(model, calibration)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "model.onnx"
            npuconv.convert(
                model, target, calibration=calibration, format=form, input_shape=shapes
            ).save(file)
            report = npuconv.verify(model, file, samples, vendor=vendor)
    except (NpuconvError, KeyError) as error:
        return f"not converted: {error}"[:_LONGEST]
    verdict = report.vendor
    assert verdict is not None
    own = "exact" if report.total.sqnr_db is None else f"{report.total.sqnr_db:.1f} dB"
    if verdict.verdict != "accepted" or verdict.total is None:
        reason = verdict.message or next((la.reason for la in verdict.layers if la.reason), "")
        return f"{own}; {verdict.verdict}: {reason}"[:_LONGEST]
    steps = [output.largest for output in verdict.outputs if output.largest is not None]
    device = "exact" if verdict.total.sqnr_db is None else f"{verdict.total.sqnr_db:.1f} dB"
    return f"{own}; {device}, {max(steps, default='-')} steps"


def main(arguments: list[str]) -> None:
    """Print a row for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="samples, shared models, exports  [default: all]")
    parser.add_argument("--shared", type=Path, default=SHARED)
    options = parser.parse_args(arguments)
    columns = []
    for vendor, *how in COLUMNS:
        try:
            VendorTool.find(vendor, None)
        except UsageError as error:
            print(f"{vendor} is left out: {error.message}")
        else:
            columns.append((vendor, *how))
    names = sorted(folder.parent.name for folder in ROOT.glob("samples/*/evaluation.npz"))
    names += dict.fromkeys(recipe.model for recipe in recipes().values())
    names += sorted(model.stem for model in options.shared.glob("exporters/*.onnx"))
    print_head(("model", *(f"{vendor}, {form}: npuconv; device" for vendor, _, form in columns)))
    for name in options.names or names:
        cells = [cell(name, options.shared, *column) for column in columns]
        print(line([name, *cells]), flush=True)
