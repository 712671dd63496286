"""Findings of the rules on calibration, with the evidence for them."""

from __future__ import annotations

import onnx

from npuconv.data import Samples
from npuconv.data.normalization_mismatch import find_mismatch
from npuconv.findings import Finding
from npuconv.legalize.legal import LegalModel
from npuconv.quantize import kept
from npuconv.quantize.calibrate import Calibration
from npuconv.quantize.state import QuantState
from npuconv.rules import engine
from npuconv.rules.context import CalibrationEvidence


def calibration_findings(
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
            legal.model, proto, samples, calibration.statistics, legal.expected
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
