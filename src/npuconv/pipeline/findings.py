"""Findings of calibration and of the measured int8 model, with what the rules need for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import onnx

from npuconv.data import Samples
from npuconv.data.normalization_mismatch import find_mismatch
from npuconv.emit.tflite.translate import find_obstacles
from npuconv.findings import Finding
from npuconv.legalize.legal import LegalModel
from npuconv.model import save
from npuconv.quantize import kept
from npuconv.quantize.calibrate import Calibration
from npuconv.quantize.state import QuantState
from npuconv.rules import engine
from npuconv.rules.context import CalibrationEvidence, MeasuredError, OutputSqnr
from npuconv.schemas.quality import Accuracy


def of_form(legal: LegalModel) -> list[Finding]:
    """Return findings of the rules that look at the form of the output, before any calibration.

    Convolutions that the device refuses have findings of their own.

    Raises:
        InternalError: a bug in a rule.
    """
    if legal.options.format != "tflite" or engine.binding(legal.findings.every):
        return []
    every = find_obstacles(save.to_proto(legal.model))
    obstacles = tuple(o for o in every if o.node not in legal.blocked)
    # A form holds no node better because it stays float.
    rules = replace(legal.rules(obstacles=obstacles), kept_float=frozenset())
    return engine.lint(rules, at="form")


def of_calibration(
    legal: LegalModel,
    proto: onnx.ModelProto,
    samples: Samples,
    calibration: Calibration,
    state: QuantState,
    is_normalized: bool,
) -> list[Finding]:
    """Return findings of the rules that look at calibration.

    ``is_normalized`` tells whether the user has normalized the samples, or said how.

    Raises:
        InternalError: a bug in a rule.
    """
    mismatch = None
    if is_normalized:
        mismatch = find_mismatch(
            legal.model, proto, samples, calibration.statistics, legal.ctx.expected
        )
    from_source = (g for g in legal.plan.groups if state.methods.get(g.name) in kept.METHODS)
    seen = CalibrationEvidence(
        plan=legal.plan,
        statistics=calibration.statistics,
        encodings=state.encodings,
        kept=frozenset(end for group in from_source for end in group.outputs),
        samples=len(samples),
        rounded=state.weights,
        mismatch=mismatch,
    )
    return engine.lint(legal.rules(evidence=seen), at="calibrated")


def of_result(legal: LegalModel, accuracy: Accuracy, broken: tuple[str, ...] = ()) -> list[Finding]:
    """Return findings of the rules that look at the measured int8 model.

    Raises:
        InternalError: a bug in a rule.
    """
    if accuracy.outputs and all(output.holds_indices for output in accuracy.outputs):
        return []
    exact = accuracy.sqnr_db is None and accuracy.cosine is not None
    shown = tuple(_shown(accuracy))
    measured = MeasuredError(
        accuracy.sqnr_db, exact, accuracy.samples - accuracy.uncompared, shown, broken
    )
    return engine.lint(legal.rules(measured=measured), at="measured")


def _shown(accuracy: Accuracy) -> Iterator[OutputSqnr]:
    for output in accuracy.outputs:
        if output.sqnr_db is not None:
            yield OutputSqnr(output.name, output.sqnr_db)
        for part in output.parts:
            if part.sqnr_db is not None:
                yield OutputSqnr(part.name, part.sqnr_db, output.name)
