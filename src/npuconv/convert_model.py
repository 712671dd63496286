"""Conversion of a model: every step in order, each from values to values.

The module is not called ``convert``, because ``npuconv.convert`` is the function.
"""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

import onnx

from npuconv import executor, limits
from npuconv.config import Options, make_options
from npuconv.conversion import Conversion, refusal
from npuconv.data import Source
from npuconv.data.calibration_data import explained, load_float, open_calibration
from npuconv.data.workers import one_thread_each
from npuconv.emit.write_model import emit_model, form_findings, with_target_defaults
from npuconv.evaluate.comparison import check_loads, compare_conversion
from npuconv.keywords import OptionKeywords
from npuconv.legalize.legal import LegalModel, legalize
from npuconv.model import store
from npuconv.quantize.imported_scales import import_weights
from npuconv.quantize.quantization import quantize
from npuconv.report.builder.conversion import WrittenModel, describe_float, describe_integers
from npuconv.report.builder.placement_rows import rewritten_rows
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
        progress: called with a stage ("calibrate 3/24"), the work done so far and the work of the
            whole conversion (0: not known yet); without calibration data, first called with
            "assumed: " and a description of the built-in samples.
        timings: whether the report has the time of each stage.
        **options: the keys of ``npuconv.config.Options``.

    Raises:
        UnsupportedModelError: findings refuse the model; carries the report.
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
    options, clock = with_target_defaults(options), Timings(progress)
    with limits.applied(options.limits):  # limits on untrusted files, for all code below
        legal = legalize(model, options, clock)  # rewritten, with the place of each node
        legal = legal.with_findings(form_findings(legal))
        node_rows, shown_clock = rewritten_rows(legal), clock if timings else None
        if legal.findings.refuse:
            raise refusal(build_report(legal, node_rows, timings=shown_clock))
        command = legal.target.command_for(options.format)
        with executor.run_errors(legal.model.name):
            write = _write_integers if options.calibrates else _write_floats
            written = write(legal, calibration, clock)
        legal, tflite = written.legal, written.tflite  # calibration and errors add findings
        report = build_report(legal, node_rows, written.results, timings=shown_clock)
        if not report.ok:
            raise refusal(report)
        return Conversion(store.whole(written.proto), report, legal.model.store, tflite, command)


def _write_integers(legal: LegalModel, calibration: Source, clock: Timings) -> WrittenModel:
    """Choose integers for tensors and weights, write them, and compare with the float model."""
    legal = legal.with_whole_layers()  # quantize splits the layers, after their weights
    # BLAS with several threads gives other last digits.
    with executor.one_arena(), one_thread_each():
        with explained(legal):
            with clock.measured("calibration data"):
                data = open_calibration(legal, calibration)
            if data.builtin is not None:
                clock.announce(f"assumed: {data.builtin.sentence}", len(data.samples))
            quantization = quantize(legal, data, clock)
        with clock.measured("quantize"):
            split = quantization.parts  # the graph whose layers are split
            state = split.state
            emitted = emit_model(split.graph, state.encodings, state.weights, split.convs)
        with clock.measured("compare"):
            comparison = compare_conversion(quantization, emitted, clock.step)
        with clock.measured("sensitivity"):  # measured since the weights have been rounded
            quantization.sensitivity()
    return describe_integers(quantization, emitted, comparison)


def _write_floats(legal: LegalModel, calibration: Source, clock: Timings) -> WrittenModel:
    """Write a form whose activations stay float: no sample is needed."""
    load_float(legal)  # raises if onnxruntime does not load the model
    with clock.measured("quantize"):
        convolutions, per_tensor = legal.plan.convolutions, legal.is_per_tensor
        weights, _notes = import_weights(legal.model, convolutions, {}, per_tensor=per_tensor)
        emitted = emit_model(legal, {}, weights)
    warning = check_loads(emitted.proto)  # empty if it loads at the default settings
    return describe_float(emitted, warning, has_samples=calibration is not None)
