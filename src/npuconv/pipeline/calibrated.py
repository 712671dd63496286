"""Findings of the rules that look at calibration and at the measured int8 model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from npuconv.calibration.inputs import first_convolution
from npuconv.calibration.trials import run_trials
from npuconv.legalize.selection import wanted
from npuconv.rules import engine
from npuconv.rules.context import RuleContext
from npuconv.rules.evidence import CalibrationEvidence, MeasuredError, OutputSqnr

if TYPE_CHECKING:
    import onnx

    from npuconv.arithmetic.statistics import Statistics
    from npuconv.diagnostics import Finding
    from npuconv.legalize.legal import Legalized
    from npuconv.quantize.state import QuantState
    from npuconv.samples import Samples
    from npuconv.schemas.report import Accuracy


def judge(
    work: Legalized,
    proto: onnx.ModelProto,
    samples: Samples,
    statistics: Mapping[str, Statistics],
    state: QuantState,
) -> None:
    """Add what the samples have shown to the findings.

    Args:
        work: a calibrated model, still in float; its findings grow.
        proto: the same model.
        samples: those it was calibrated on.
        statistics: of the float pass.
        state: how every tensor and weight is quantized.

    Raises:
        InternalError: a bug in a rule.
    """
    start = time.perf_counter()
    first, trials = first_convolution(work.model), None
    if first is not None and not samples.builtin:
        output = statistics.get(first.outputs[0].name)
        trials = run_trials(work.model, proto, samples, first, output)
    evidence = CalibrationEvidence(
        plan=work.plan,
        statistics=statistics,
        encodings=state.encodings,
        samples=len(samples),
        synthetic=samples.builtin,
        expected=work.ctx.expected,
        rounded=state.weights,
        first=first,
        trials=trials,
    )
    rules = RuleContext(work.model, work.target, work.options, work.fact_cache, evidence=evidence)
    _add(work, engine.lint(rules, at="calibrated"))
    work.timings.append(("judge", time.perf_counter() - start))


def judge_result(work: Legalized, accuracy: Accuracy, broken: tuple[str, ...] = ()) -> None:
    """Add what the int8 model was measured to do to the findings.

    Args:
        work: what was converted; its findings grow.
        accuracy: what was measured.
        broken: outputs that are finite in the float model only.

    Raises:
        InternalError: a bug in a rule.
    """
    exact = accuracy.sqnr_db is None and accuracy.cosine is not None
    shown = tuple(_shown(accuracy))
    measured = MeasuredError(accuracy.sqnr_db, exact, accuracy.samples, shown, broken)
    rules = RuleContext(work.model, work.target, work.options, work.fact_cache, measured=measured)
    _add(work, engine.lint(rules, at="measured"))


def _shown(accuracy: Accuracy) -> Iterator[OutputSqnr]:
    for output in accuracy.outputs:
        if output.sqnr_db is not None:
            yield OutputSqnr(output.name, output.sqnr_db)
        for part in output.parts:
            if part.sqnr_db is not None:
                yield OutputSqnr(part.name, part.sqnr_db, output.name)


def _add(work: Legalized, found: list[Finding]) -> None:
    work.every += found
    work.findings = wanted([*work.findings, *found], work.options, work.listed)
