"""Result of a conversion: the model and its report, or the error that carries the report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from npuconv import files
from npuconv.errors import UnsupportedModelError
from npuconv.model import save
from npuconv.model.store import Store
from npuconv.records import dataclass, field
from npuconv.schemas import report as schema

if TYPE_CHECKING:
    from npuconv.emit.tflite.translate import TfliteFile


@dataclass(frozen=True)
class Conversion:
    """A converted model and its report.

    Attributes:
        model: the converted model as ONNX. Weights of more than 2 GB are in temporary files beside
            it, which are deleted with this object; ``save`` writes them beside the model.
        report: findings, rewrites and results.
        tflite: the file of ``format="tflite"``; ``model`` then has the same integers as ONNX.
        next_command: command of the device's compiler; ``{model}`` is replaced by the model's path.
    """

    model: onnx.ModelProto
    report: schema.Report
    _store: Store | None = field(default=None, repr=False)  # owner of the files of large weights
    tflite: TfliteFile | None = field(default=None, repr=False)
    next_command: str = ""

    def save(self, path: str | Path) -> None:
        """Write the model whole or not at all.

        A path that ends in .onnx gets ONNX, even if the output format is TFLite.

        Raises:
            OutputError: the destination cannot be written.
        """
        if self.tflite is not None and Path(path).suffix != ".onnx":
            files.write(path, self.tflite.data)
        else:
            save.save(self.model, path)


def refusal(report: schema.Report) -> UnsupportedModelError:
    """Return the error of a model that findings refuse; it carries the report."""
    return UnsupportedModelError(f"{report.model.path}: {report.summary.headline}", report)
