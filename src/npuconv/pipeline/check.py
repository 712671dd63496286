"""Check of a model: legalization, and a first look at the samples."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import onnx

from npuconv import emit, limits
from npuconv.config import Options, make_options
from npuconv.data import Source
from npuconv.errors import NpuconvError, of_model
from npuconv.keywords import OptionKeywords
from npuconv.legalize.legal import LegalModel, legalize
from npuconv.legalize.selection import fails
from npuconv.model import save
from npuconv.partition.crossings import traffic
from npuconv.pipeline import findings, prepare
from npuconv.pipeline.prepare import CalibrationData
from npuconv.report.builder import notices
from npuconv.report.builder.placed import graph_rows
from npuconv.report.builder.report import NOTHING, Outcome, build_report
from npuconv.schemas.report import Report
from npuconv.timings import Timings


def check(
    model: str | Path | onnx.ModelProto,
    target: str = "npu-int8",
    *,
    calibration: Source = None,
    timings: bool = False,
    **options: Unpack[OptionKeywords],
) -> Report:
    """Check whether a model can be converted, and report why not.

    Args:
        model: a path, or a ModelProto, which is not changed.
        target: name of a built-in target, or path of a target file.
        calibration: as for ``convert``; the samples are opened, and the first is run.
        timings: whether the report says how long each stage took.
        **options: the keys of ``npuconv.config.Options``.

    Returns:
        The same findings that ``convert`` would have, but for those of its samples:
        ``summary.not_judged`` says where these count.

    Raises:
        NpuconvError: a model, target or option that cannot be used.
    """
    chosen = make_options({"target": str(target), **options})
    return check_with(model, chosen, calibration, timings=timings)


def check_with(
    model: str | Path | onnx.ModelProto,
    options: Options,
    calibration: Source = None,
    *,
    timings: bool = False,
    runs: bool = True,
) -> Report:
    """``check`` with options that have been validated.

    Unless ``runs``, only its nodes are judged: no model is run and no sample opened. The others are
    as for ``check``.
    """
    options = prepare.with_form(options)
    clock = Timings()
    with limits.applied(options.limits):
        legal = legalize(model, options, clock)
        legal = legal.with_findings(findings.of_form(legal))
        refused = legal.findings.refuse
        with of_model(legal.model.name):
            outcome = _outlook(legal, calibration, clock) if runs and not refused else NOTHING
    return build_report(
        legal,
        graph_rows(legal),
        "refused" if refused else "convertible",
        failed=fails(legal.findings.selected, legal.options),
        warnings=() if refused else _unused(legal.options, calibration),
        outcome=outcome,
        timings=clock if timings else None,
    )


def _outlook(legal: LegalModel, calibration: Source, clock: Timings) -> Outcome:
    """Fail as a conversion would; return what it would be calibrated on, and what is left open."""
    proto = save.to_proto(legal.model)
    try:
        data = _tried(legal, proto, calibration, clock)
    except NpuconvError:
        prepare.load_float(legal.model, proto)  # a conversion begins with that
        raise
    if data is None:
        return NOTHING
    crossing = traffic(legal.model, legal.plan)
    row = data.row if legal.plan.device else None
    left = (
        *notices.not_judged(legal.options, crossing),
        *notices.sums_not_judged(legal.target, legal.plan.device),
        *notices.samples_not_judged(data.samples),
    )
    return Outcome(row, not_judged=left)


def _tried(
    legal: LegalModel, proto: onnx.ModelProto, calibration: Source, clock: Timings
) -> CalibrationData | None:
    """Run the first sample, and return the data; None for a form that needs none."""
    if not emit.get(legal.options.format).calibrates:
        with clock.measured("load in onnxruntime"):
            prepare.load_float(legal.model, proto)
        return None
    with clock.measured("calibration data"):
        data = prepare.open_calibration(legal, proto, calibration)
    with clock.measured("first sample"):  # which loads the model, with all that is looked at
        prepare.try_sample(legal, proto, data.samples)
    return data


def _unused(options: Options, calibration: Source) -> tuple[str, ...]:
    """Return warnings about options that the form of the output has no use for."""
    form = emit.get(options.format)
    given = calibration is not None
    return () if form.calibrates else notices.unused(form.name, options, samples=given)
