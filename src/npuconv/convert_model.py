"""Conversion of a model: every step in order, each from values to values.

The module is not called ``convert``, because ``npuconv.convert`` is the function.
"""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import onnx

from npuconv import emit, limits
from npuconv.config import Options, make_options
from npuconv.conversion import Conversion, finish, refused, run_errors
from npuconv.data import Source
from npuconv.data.calibration_data import load_float, open_calibration
from npuconv.data.workers import one_thread_each
from npuconv.emit.emit import emit_model, form_findings
from npuconv.evaluate import vela
from npuconv.evaluate.comparison import check_loads, compare_conversion
from npuconv.keywords import OptionKeywords
from npuconv.legalize.legal import LegalModel, legalize
from npuconv.quantize.imported_scales import import_weights
from npuconv.quantize.quantization import quantize
from npuconv.report.builder.conversion import Written, describe_float, describe_integers
from npuconv.report.builder.placement_rows import graph_rows
from npuconv.report.builder.report import build_report
from npuconv.timings import Progress, Timings, silent


def convert(
    model: str | Path | onnx.ModelProto,
    target: str = "npu-int8",
    *,
    calibration: Source = None,
    progress: Progress = silent,
    timings: bool = False,
    **options: Unpack[OptionKeywords],
) -> Conversion:
    """Convert a float model for the target.

    Args:
        model: a path, or a ModelProto, which is not changed.
        target: name of a built-in target, or path of a target file.
        calibration: a path, a dict of arrays whose first axis counts samples, or an
            iterable of dicts of complete inputs; None for built-in pictures or numbers.
        progress: called with a stage ("calibrate 3/24"), how much of the whole conversion is
            done, and of how much (0: not known yet); without data once before with
            "assumed: " and a description of the built-in samples.
        timings: whether the report has the time of each stage.
        **options: the keys of ``npuconv.config.Options``.

    Raises:
        UnsupportedModelError: findings stand against it; carries the report.
        NpuconvError: a model, target, option or sample that cannot be used.
    """
    validated_options = make_options({"target": str(target), **options})
    return convert_with(model, validated_options, calibration, progress, timings=timings)


def convert_with(
    model: str | Path | onnx.ModelProto,
    options: Options,
    calibration: Source,
    progress: Progress = silent,
    *,
    timings: bool = False,
) -> Conversion:
    """``convert`` with options that have been validated."""
    options, clock = emit.with_form(options), Timings(progress)
    form, shown_clock = emit.get(options.format), clock if timings else None
    with limits.applied(options.limits):
        legal = legalize(model, options, clock)
        legal = legal.with_findings(form_findings(legal))
        rows = graph_rows(legal)
        if legal.findings.refuse:
            raise refused(build_report(legal, rows, "refused", failed=True, timings=shown_clock))
        command = legal.target.next_command
        compiler = vela.require(command, form.name) if options.with_vela else []
        with run_errors(legal.model.name):
            write = _write_integers if form.calibrates else _write_float_activations
            written = write(legal, calibration, clock)
        return finish(written, rows, compiler, shown_clock)


def _write_integers(legal: LegalModel, calibration: Source, clock: Timings) -> Written:
    """Choose integers for tensors and weights, write them, and compare with the float model."""
    legal = legal.with_whole_layers()
    with clock.measured("calibration data"):
        float_model = legal.proto()
        load_float(legal.model, float_model)
        data = open_calibration(legal, float_model, calibration, legal.options.cache)
        if data.builtin is not None:
            clock.announce(f"assumed: {data.builtin.sentence}", len(data.samples))
    with one_thread_each():
        quantization = quantize(legal, data, clock)
        with clock.measured("quantize"):
            parts = quantization.parts
            state = parts.state
            emitted = emit_model(parts.graph, state.encodings, state.weights, parts.convs)
        with clock.measured("compare"):
            comparison = compare_conversion(quantization, emitted, clock.step)
    return describe_integers(quantization, emitted, comparison)


def _write_float_activations(legal: LegalModel, calibration: Source, clock: Timings) -> Written:
    """Write a form whose activations stay float: no sample is needed."""
    load_float(legal.model, legal.proto())
    with clock.measured("quantize"):
        weights, _ = import_weights(
            legal.model,
            legal.plan.convolutions,
            {},
            legal.source_scales,
            per_tensor=legal.is_per_tensor,
        )
        emitted = emit_model(legal, weights=weights)
    refusal = check_loads(emitted.proto)
    return describe_float(emitted, refusal, has_samples=calibration is not None)
