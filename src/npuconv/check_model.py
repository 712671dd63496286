"""Check of a model: legalization, then a run of the first sample.

The module is not called ``check``, because ``npuconv.check`` is the function.
"""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import onnx

from npuconv import limits
from npuconv.config import Options, make_options
from npuconv.data import Source
from npuconv.data.calibration_data import explained, load_float, open_calibration
from npuconv.emit.write_model import form_findings, with_target_defaults
from npuconv.errors import naming_model
from npuconv.keywords import OptionKeywords
from npuconv.legalize.legal import LegalModel, legalize
from npuconv.quantize.calibrate import try_sample
from npuconv.records import replace
from npuconv.report.builder import notices
from npuconv.report.builder.placement_rows import rewritten_rows
from npuconv.report.builder.report import NO_RESULTS, RunResults, build_report
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
        timings: whether the report has the time of each stage.
        **options: the keys of ``npuconv.config.Options``.

    Returns:
        The findings that ``convert`` would have, without findings on its samples:
        ``summary.not_judged`` names options that only a conversion can judge.

    Raises:
        NpuconvError: a model, target or option that cannot be used.
    """
    validated_options = make_options({"target": str(target), **options})
    return check_with(model, validated_options, calibration, timings=timings)


def check_with(
    model: str | Path | onnx.ModelProto,
    options: Options,
    calibration: Source = None,
    *,
    timings: bool = False,
) -> Report:
    """``check`` with options that have been validated."""
    options, clock = with_target_defaults(options), Timings()
    with limits.applied(options.limits):
        legal = legalize(model, options, clock)
        legal = legal.with_findings(form_findings(legal))
        results = NO_RESULTS
        if not legal.findings.refuse:
            with naming_model(legal.model.name):
                results = _run_first_sample(legal, calibration, clock)
        if not legal.findings.refuse and not legal.options.calibrates:
            has_samples = calibration is not None
            warnings = notices.unused(legal.options.format, legal.options, samples=has_samples)
            results = replace(results, warnings=warnings)
    shown_clock = clock if timings else None
    return build_report(legal, rewritten_rows(legal), results, is_check=True, timings=shown_clock)


def _run_first_sample(legal: LegalModel, calibration: Source, clock: Timings) -> RunResults:
    """Run the model as the beginning of a conversion would, with the same errors.

    Returns:
        The assumed inputs, and the options that only a conversion can judge.
    """
    if not legal.options.calibrates:
        with clock.measured("load in onnxruntime"):
            load_float(legal)
        return NO_RESULTS
    with explained(legal):
        with clock.measured("calibration data"):
            data = open_calibration(legal, calibration)
        with clock.measured("first sample"):  # this loads the model, with all observed tensors
            try_sample(legal, data.samples)
    not_judged = notices.not_judged(legal, data.samples)
    return RunResults(data.row if legal.plan.convolutions else None, not_judged=not_judged)
