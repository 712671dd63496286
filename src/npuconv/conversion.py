"""Result of a conversion: the model, its report, and the errors instead of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from npuconv import files
from npuconv.emit.tflite.translate import TfliteFile
from npuconv.errors import ModelError, UnsupportedModelError, of_model
from npuconv.evaluate import vela
from npuconv.executor import RuntimeRefusedError
from npuconv.model import save, store
from npuconv.model.store import Store
from npuconv.report.builder.conversion import Written
from npuconv.report.builder.report import build_report
from npuconv.schemas import report as schema
from npuconv.timings import Timings


@dataclass(frozen=True)
class Conversion:
    """A converted model and its report.

    Attributes:
        model: as ONNX. Weights of more than 2 GB are not in it: it refers to files that
            are there as long as the conversion is, and ``save`` writes them beside the model.
        report: findings, rewrites and results.
        tflite: the file of ``format="tflite"``; ``model`` then has the same integers as ONNX.
        next_command: of the target, to be run on the file; ``{model}`` is replaced by its path.
    """

    model: onnx.ModelProto
    report: schema.Report
    _store: Store | None = field(default=None, repr=False)
    tflite: TfliteFile | None = field(default=None, repr=False)
    next_command: str = ""

    def save(self, path: str | Path) -> None:
        """Write the model whole or not at all.

        A path that ends in .onnx gets ONNX also where the form is TFLite.

        Raises:
            OutputError: the destination cannot be written.
        """
        if self.tflite is not None and Path(path).suffix != ".onnx":
            files.write(path, self.tflite.data)
        else:
            save.save(self.model, path)


def refused(report: schema.Report) -> UnsupportedModelError:
    """Return the error of a model that findings stand against."""
    return UnsupportedModelError(f"{report.model.path}: {report.summary.headline}", report)


def finish(
    written: Written,
    rewritten: tuple[schema.RewriteRow, ...],
    compiler: Sequence[str],
    clock: Timings | None,
) -> Conversion:
    """Report a written model.

    Args:
        written: the model in its form.
        rewritten: rows of the source nodes that become something else.
        compiler: command of Vela, to estimate the TFLite file with; may be empty.
        clock: seconds of the stages for the report; may be None.

    Raises:
        UnsupportedModelError: calibration or the measured error stands against it.
    """
    legal, tflite = written.legal, written.tflite
    report = build_report(legal, rewritten, written.results, timings=clock)
    if not report.ok:
        raise refused(report)
    if compiler and tflite is not None:
        report = report.model_copy(update={"vela": vela.estimate(tflite.data, compiler)})
    whole, command = store.whole(written.proto), legal.target.next_command
    return Conversion(whole, report, legal.model.store, tflite, command)


@contextlib.contextmanager
def run_errors(name: str) -> Iterator[None]:
    """Name the model in errors, and make a user's error of a refusal of onnxruntime.

    No earlier run shows some of these: a tensor with 2,000 axes, for one.
    """
    with of_model(name):
        try:
            yield
        except RuntimeRefusedError as error:
            raise ModelError(f"cannot be run: {error}") from None
