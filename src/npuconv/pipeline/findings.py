"""Findings of the rules that look at calibration and at the measured int8 model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.calibration.inputs import first_convolution
from npuconv.calibration.trials import run_trials
from npuconv.rules import engine
from npuconv.rules.evidence import CalibrationEvidence, MeasuredError, OutputSqnr

if TYPE_CHECKING:
    import onnx

    from npuconv.diagnostics import Finding
    from npuconv.legalize.legal import LegalModel
    from npuconv.quantize.calibrate import Calibration
    from npuconv.quantize.state import QuantState
    from npuconv.samples import Samples
    from npuconv.schemas.report import Accuracy


def of_calibration(
    legal: LegalModel,
    proto: onnx.ModelProto,
    samples: Samples,
    calibration: Calibration,
    state: QuantState,
) -> list[Finding]:
    """Return findings of the rules that look at calibration.

    Args:
        legal: a calibrated model, still in float.
        proto: the same model.
        samples: those it was calibrated on.
        calibration: statistics of the float pass.
        state: how every tensor and weight is quantized.

    Raises:
        InternalError: a bug in a rule.
    """
    statistics = calibration.statistics
    first, trials = first_convolution(legal.model), None
    if first is not None and not samples.builtin:
        output = statistics.get(first.outputs[0].name)
        trials = run_trials(legal.model, proto, samples, first, output)
    seen = CalibrationEvidence(
        plan=legal.plan,
        statistics=statistics,
        encodings=state.encodings,
        samples=len(samples),
        synthetic=samples.builtin,
        expected=legal.ctx.expected,
        rounded=state.weights,
        first=first,
        trials=trials,
    )
    return engine.lint(legal.rules(evidence=seen), at="calibrated")


def of_result(legal: LegalModel, accuracy: Accuracy, broken: tuple[str, ...] = ()) -> list[Finding]:
    """Return findings of the rules that look at the measured int8 model.

    Args:
        legal: what was converted.
        accuracy: what was measured.
        broken: outputs that are finite in the float model only.

    Raises:
        InternalError: a bug in a rule.
    """
    exact = accuracy.sqnr_db is None and accuracy.cosine is not None
    shown = tuple(_shown(accuracy))
    measured = MeasuredError(accuracy.sqnr_db, exact, accuracy.samples, shown, broken)
    return engine.lint(legal.rules(measured=measured), at="measured")


def _shown(accuracy: Accuracy) -> Iterator[OutputSqnr]:
    for output in accuracy.outputs:
        if output.sqnr_db is not None:
            yield OutputSqnr(output.name, output.sqnr_db)
        for part in output.parts:
            if part.sqnr_db is not None:
                yield OutputSqnr(part.name, part.sqnr_db, output.name)
