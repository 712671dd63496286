"""Samples, and real models if they are beside the project: each is converted once per run.

Conversions take most of the time of tests of written models, so all processes of a run share a
folder of conversions: the first process converts a model, the others wait and read the result.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

import npuconv
from npuconv.schemas.report import Report

ROOT = Path(__file__).parents[2]
SAMPLES = sorted(ROOT.glob("samples/*/model.onnx"))
MODELS = sorted((ROOT.parent / "shared").glob("models/*/model.onnx"))
SHAPES = {
    "bodypix_mnv1_050_s16": {"input": (1, 257, 257, 3)},
    "ppocrv4_rec": {"x": (1, 3, 48, 320)},
    "silero_vad_op15": {"input": (1, 576), "state": (2, 1, 128)},
}
# ``make sweep``: half a minute and more each, or large and of one family with a smaller model
# (PP-OCR detection, MobileNetV2).
SLOW = frozenset(
    {
        *("light_densenet121", "style_candy"),
        *("ppocrv4_rec", "mlsd_tiny_320_kj", "deeplabv3_mnv2_257"),
    }
)

needs_models = pytest.mark.skipif(not MODELS, reason="no real models beside the project")


def each(*paths: Path) -> list[object]:
    """Return models as parameters of a test; slow models only run in ``make sweep``."""
    return [
        pytest.param(path, marks=[pytest.mark.sweep] if path.parent.name in SLOW else [])
        for path in paths
    ]


def name_of(path: object) -> str | None:
    """Return the name of a model for the name of a test."""
    return path.parent.name if isinstance(path, Path) else None


def shapes_of(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes that a model with open extents is converted with."""
    return SHAPES.get(path.parent.name, {})


@dataclass(frozen=True)
class Converted:
    """A conversion on two samples.

    Attributes:
        report: report of the conversion.
        path: path of the written model; None if it was refused.
    """

    report: Report
    path: Path | None

    @property
    def model(self) -> onnx.ModelProto:
        """The written model; the test is skipped if the model was refused."""
        if self.path is None:
            pytest.skip(f"refused: {self.report.summary.headline}")
        return onnx.load(self.path)


class Conversions:
    """All conversions of a run, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def of(self, path: Path, form: str = "qoperator") -> Converted:
        """Return the conversion of a model; convert it if no process has."""
        stem = self.folder / f"{path.parent.name}.{form}"
        model_path = stem.with_suffix(f".{form}.onnx")
        report_path = stem.with_suffix(f".{form}.json")
        with _locked(stem.with_suffix(f".{form}.lock")):
            if not report_path.exists():
                report_path.write_text(_convert(path, form, model_path).model_dump_json(), "utf-8")
        report = Report.model_validate_json(report_path.read_text("utf-8"))
        return Converted(report, model_path if model_path.exists() else None)


def _convert(path: Path, form: str, model_path: Path) -> Report:
    try:
        result = npuconv.convert(path, format=form, max_samples=2, input_shape=shapes_of(path))
    except npuconv.UnsupportedModelError as error:
        return error.report
    result.save(model_path)
    return result.report


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock that processes share."""
    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def feeds(
    model: onnx.ModelProto, seed: int = 0, **shapes: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Return random inputs in 0..1: one sample; other open extents are 64, of a sound 576.

    Args:
        model: the model.
        seed: seed of the numbers.
        **shapes: shapes of inputs with other open extents, by name.
    """
    rng = np.random.default_rng(seed)
    constants = {t.name for t in model.graph.initializer}
    inputs = {}
    for info in model.graph.input:
        if info.name in constants:
            continue
        kind = info.type.tensor_type
        dims = [d.dim_value if d.dim_value > 0 else 0 for d in kind.shape.dim]
        # A state has its samples along the second of three axes.
        sizes = {2: [1, 576], 3: [1, 1, 64]}.get(len(dims), [1] + [64] * (len(dims) - 1))
        dims = shapes.get(info.name) or [size or sizes[axis] for axis, size in enumerate(dims)]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        values = rng.random(dims) if dtype.kind == "f" else np.ones(dims)
        inputs[info.name] = values.astype(dtype)
    return inputs
