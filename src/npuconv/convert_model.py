"""Conversion of a model: every step in order, each from values to values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import onnx

from npuconv import calibration_data as prepare
from npuconv import emit, limits
from npuconv.config import Options, make_options
from npuconv.conversion import Conversion
from npuconv.data import Samples, Source
from npuconv.data.workers import one_thread_each
from npuconv.emit import Format
from npuconv.emit.emit import EmittedModel, form_findings
from npuconv.emit.emit import emit as emit_model
from npuconv.emit.tflite.translate import TfliteFile
from npuconv.emit.tflite.translate import write as write_tflite
from npuconv.errors import (
    InternalError,
    ModelError,
    UnsupportedModelError,
    of_model,
)
from npuconv.evaluate import matching, preparation, vela
from npuconv.evaluate.comparison import (
    ONLY_INDICES,
    Comparison,
    Measured,
    accuracy_findings,
    summed_up,
)
from npuconv.evaluate.matching import layer_pairs, layers_of
from npuconv.executor import RuntimeRefusedError
from npuconv.keywords import OptionKeywords
from npuconv.legalize.legal import LegalModel, legalize
from npuconv.legalize.selection import waived
from npuconv.model import save, store
from npuconv.quantize.budget import spend_budget
from npuconv.quantize.calibrate import Calibration
from npuconv.quantize.calibration_findings import calibration_findings
from npuconv.quantize.clipping import clip_ranges
from npuconv.quantize.fake_quant import logits, quant_points
from npuconv.quantize.host_prep import pad_between_layers, prepare_host
from npuconv.quantize.kept import keep_weights
from npuconv.quantize.oversampling import Oversampled
from npuconv.quantize.ranges import choose_encodings
from npuconv.quantize.rounding import round_weights
from npuconv.quantize.sensitivity import Sensitivity, measure
from npuconv.quantize.settings import SENSITIVITY
from npuconv.quantize.split import split
from npuconv.quantize.state import QuantState
from npuconv.report.builder import notices
from npuconv.report.builder.placement_rows import GraphRows, graph_rows
from npuconv.report.builder.quantization_rows import (
    Crossing,
    budget_report,
    padding_report,
    partial_sums,
    source_scales,
    tensor_rows,
    weight_rows,
    with_shares,
)
from npuconv.report.builder.report import Outcome, build_report
from npuconv.schemas import quality
from npuconv.schemas import report as schema
from npuconv.timings import Progress, Timings, silent

ASSUMED = "assumed: "  # begins a stage that says what is taken instead of data


@dataclass(frozen=True)
class Emitted:
    """A model in its form, with values for the report."""

    model: onnx.ModelProto
    legal: LegalModel  # the float model that it was made of, with all findings
    rows: GraphRows  # of the float graph
    outcome: Outcome  # quantization, accuracy, data
    warnings: tuple[str, ...]  # sentences that a reader must know before trusting the result
    tflite: TfliteFile | None = None  # the file, where that is the form


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
            done, and of how much (0: not known yet); where there is no data once before with
            "assumed: " and what is taken instead.
        timings: whether the report says how long each stage took.
        **options: the keys of ``npuconv.config.Options``.

    Raises:
        UnsupportedModelError: findings stand against it; carries the report.
        NpuconvError: a model, target, option or sample that cannot be used.
    """
    chosen = make_options({"target": str(target), **options})
    return convert_with(model, chosen, calibration, progress, timings=timings)


def convert_with(
    model: str | Path | onnx.ModelProto,
    options: Options,
    calibration: Source,
    progress: Progress = silent,
    *,
    timings: bool = False,
) -> Conversion:
    """``convert`` with options that have been validated."""
    options = prepare.with_form(options)
    with limits.applied(options.limits):
        return _convert(model, options, calibration, progress, timings)


def _convert(
    source: str | Path | onnx.ModelProto,
    options: Options,
    calibration: Source,
    progress: Progress,
    timings: bool,
) -> Conversion:
    clock = Timings(progress)
    shown = clock if timings else None
    legal = legalize(source, options, clock)
    legal = legal.with_findings(form_findings(legal))
    rows = graph_rows(legal)
    if legal.findings.refuse:
        _refuse(build_report(legal, rows, "refused", failed=True, timings=shown))
    form, chip = emit.get(options.format), legal.target
    compiler = vela.require(chip.next_command, form.name) if options.with_vela else None
    with of_model(legal.model.name):
        made = _emitted(legal, rows, form, calibration, progress, clock)
    found = made.legal.findings
    report = build_report(
        made.legal,
        made.rows,
        "refused" if found.refuse else "converted",
        failed=found.refuse,
        warnings=(*made.warnings, *waived(found.every, found.selected)),
        outcome=made.outcome,
        timings=shown,
    )
    if found.refuse:  # calibration has shown something that fail_on is about
        _refuse(report)
    if compiler is not None and made.tflite is not None:
        report = report.model_copy(update={"vela": vela.estimate(made.tflite.data, compiler)})
    whole, kept = store.whole(made.model), legal.model.store
    return Conversion(whole, report, kept, made.tflite, chip.next_command)


def _emitted(
    legal: LegalModel,
    rows: GraphRows,
    form: Format,
    calibration: Source,
    progress: Progress,
    clock: Timings,
) -> Emitted:
    """Return the model in its form, calibrated if that has integers for activations."""
    try:
        if form.calibrates:
            with one_thread_each():
                return _quantize(legal, rows, form, calibration, progress, clock)
        return _without_samples(legal, rows, form, calibration, clock)
    except RuntimeRefusedError as error:  # what no earlier run has shown: 2,000 axes, for one
        raise ModelError(f"cannot be run: {error}") from None


def _refuse(report: schema.Report) -> None:
    raise UnsupportedModelError(f"{report.model.path}: {report.summary.headline}", report)


def _without_samples(
    legal: LegalModel, rows: GraphRows, form: Format, given: Source, clock: Timings
) -> Emitted:
    """Write a form whose activations stay float."""
    prepare.load_float(legal.model, save.to_proto(legal.model))
    with clock.measured("quantize"):
        weights, _ = keep_weights(
            legal.model, legal.plan.device, {}, legal.source_scales, per_tensor=legal.is_per_tensor
        )
        model = emit_model(legal, form, weights=weights).proto
    refusal = prepare.check_loads(model)
    unscaled = quality.Quantization(
        format=form.name, method="none", samples=0, source="none", synthetic=False
    )
    warnings = (
        *notices.nothing_left(legal.plan),
        *filter(None, [refusal]),
        *notices.unused(form.name, legal.options, samples=given is not None),
        *notices.still_float(legal.model, legal.options),
    )
    outcome = Outcome(quantization=unscaled if form.phases else None)
    return Emitted(model, legal, rows, outcome, warnings)


def _quantize(
    legal: LegalModel,
    rows: GraphRows,
    form: Format,
    source: Source,
    progress: Progress,
    clock: Timings,
) -> Emitted:
    """Quantize weights and activations, and measure the result."""
    legal = legal.with_whole_layers()
    with clock.measured("calibration data"):
        data = _open_data(legal, source, progress)
    clock.expect(prepare.expected_costs(legal, len(data.used), len(data.measured_on())))
    steps = _run_steps(legal, data, clock)
    data = steps.data
    legal = legal.with_plan(steps.graph.plan)
    float_model = save.to_proto(legal.model)
    with clock.measured("rules of calibration"):
        shown = calibration_findings(
            legal, float_model, data.used, steps.seen, steps.state, data.is_normalized
        )
    legal = legal.with_findings(shown)
    layers = layers_of(legal.model, legal.plan)
    tensors = tensor_rows(legal.plan, steps.state, steps.seen.statistics)
    weights = weight_rows(legal.plan, steps.state)
    sums, brought = partial_sums(steps.graph, steps.errors), source_scales(steps.graph, steps.state)
    legal, made, budget = _spend(legal, steps, data, clock)
    shares = _shares(steps, made, data.used, clock)  # before the graph becomes int8
    with clock.measured("split layers"):
        parts = split(made.graph, made.state)
    legal = legal.with_plan(parts.graph.plan, more_channels=budget is not None)
    rows = graph_rows(legal, rows)
    with clock.measured("quantize"):
        state = parts.state
        emitted = emit_model(legal, form, state.encodings, state.weights, parts.convs)
        model = emitted.proto
    ends = layer_pairs(legal.model, layers, made, emitted.stored, emitted.notes)
    same = notices.sameness(data.samples)
    with clock.measured("compare"):
        accuracy, layer_rows, found = _measure(legal, float_model, emitted, data, same, ends, clock)
    legal = legal.with_findings(
        [*emitted.broken, *accuracy_findings(legal, accuracy, found.broken)]
    )
    notes = {matching.KEY: matching.record(ends), preparation.KEY: data.preparation}
    save.add_metadata(model, notes)
    quantization = quality.Quantization(
        format=form.name,
        method=legal.options.method,
        **data.record,
        tensors=tensors,
        layers=with_shares(layer_rows, layers, shares, steps.state.roundings, weights),
        budget=budget,
        host_padding=steps.padding,
        partial_sums=sums,
        source_scales=brought,
    )
    warnings = notices.nothing_left(legal.plan) or data.warnings(accuracy, same)
    if legal.options.min_sqnr is not None and all(one.holds_indices for one in accuracy.outputs):
        warnings = (*warnings, ONLY_INDICES)
    every = (
        *warnings,
        *filter(None, [found.refusal]),
        *notices.still_float(legal.model, legal.options),
    )
    tflite = write_tflite(model) if form.name == "tflite" else None
    return Emitted(model, legal, rows, Outcome(data.row, quantization, accuracy), every, tflite)


def _open_data(legal: LegalModel, source: Source, progress: Progress) -> prepare.CalibrationData:
    """Check that the float model runs, and open the samples."""
    float_model = save.to_proto(legal.model)
    prepare.load_float(legal.model, float_model)
    data = prepare.open_calibration(legal, float_model, source, legal.options.cache)
    if data.chosen is not None:  # before anything else is said
        progress(f"{ASSUMED}{data.chosen.sentence}", 0, len(data.samples))
    return data


@dataclass(frozen=True)
class _Steps:
    """Quantization of a float graph, before a budget is spent."""

    data: prepare.CalibrationData  # without built-in samples that the model does not take
    graph: LegalModel  # with what the host pads
    seen: Calibration  # statistics of the float pass
    state: QuantState  # scales, zero points, integer weights
    errors: Sensitivity | None  # of the outputs, by each rounding; None where unknown
    padding: quality.HostPadding | None  # by the host, of tensors that cross for it


def _run_steps(legal: LegalModel, data: prepare.CalibrationData, clock: Timings) -> _Steps:
    """Run the steps of quantization, from the float graph to integers."""
    # What is made up, or normalized by a guess, says nothing of the grid that pixels lie on.
    brought = bool(legal.source_scales.tensors)
    off_grid = data.samples.synthetic or brought  # scales of the source are on no such grid
    without = (*legal.options.without, *(("input-grid",) if off_grid else ()))
    with clock.measured("host preparation"):
        graph, grids = prepare_host(legal, data.used, without, clock.step)
    with clock.measured("calibrate"):
        data, seen = prepare.calibrate(graph, data, clock.step)
    used = data.used
    with clock.measured("choose ranges"):
        state = choose_encodings(graph, seen, grids, without)
    with clock.measured("clip ranges"):
        state = clip_ranges(graph, seen, grids, state, used, without, clock.step)
    with clock.measured("round weights"):
        state = round_weights(graph, seen.hessians, state, without, step=clock.step)
    with clock.measured("sensitivity"):
        errors = _sensitivity(graph, state, used, clock)
    before = Crossing.of(graph, state, errors)
    with clock.measured("host padding"):
        graph, seen, state, errors = pad_between_layers(graph, seen, state, errors, without)
    padding = padding_report(before, Crossing.of(graph, state, errors))
    return _Steps(data, graph, seen, state, errors, padding)


def _sensitivity(
    graph: LegalModel, state: QuantState, used: Samples, clock: Timings
) -> Sensitivity | None:
    """Return what every rounding adds to the error of the outputs; None where that is unknown."""
    points = quant_points(graph, state)
    return measure(logits(graph.proto()), points, state, used, SENSITIVITY.probes, clock.step)


def _shares(steps: _Steps, made: Oversampled, used: Samples, clock: Timings) -> dict[str, float]:
    """Return the share of each layer in the error of the outputs; none where it is unknown."""
    errors = steps.errors
    if made.graph is not steps.graph:
        with clock.measured("sensitivity"):
            errors = _sensitivity(made.graph, made.state, used, clock)
    return {} if errors is None else errors.layers(made.copy_of)


def _spend(
    legal: LegalModel, steps: _Steps, data: prepare.CalibrationData, clock: Timings
) -> tuple[LegalModel, Oversampled, quality.Budget | None]:
    """Buy accuracy, where ``--min-sqnr`` or ``--max-extra-macs`` allows it."""
    graph, state = steps.graph, steps.state
    if legal.options.min_sqnr is None and not legal.options.max_extra_macs:
        return legal, Oversampled(graph, state), None
    biasless = len(graph.biasless)
    with clock.measured("budget"):
        spent = spend_budget(
            graph, state, steps.seen.hessians, data.used, data.evaluation(), clock.step
        )
    made, budget = spent.oversampled, budget_report(legal, spent, biasless)
    return legal, made, budget


def _measure(
    legal: LegalModel,
    float_model: onnx.ModelProto,
    emitted: EmittedModel,
    data: prepare.CalibrationData,
    same: str,
    layers: list[matching.LayerPair],
    clock: Timings,
) -> tuple[quality.Accuracy, tuple[quality.LayerQuant, ...], Measured]:
    """Measure the error of outputs and layers on the samples held out.

    Returns:
        Accuracy, a row for each layer, and all that was measured.

    Raises:
        ModelError: the float model does not run.
        InternalError: the int8 model does not run.
    """
    samples = data.measured_on()
    try:
        both = Comparison(float_model, emitted.proto, emitted.scales, layers)
        found = both.measure(
            samples, lambda number, *_: clock.step(number + 1, len(samples)), layer_samples=1
        )
    except RuntimeRefusedError as error:
        prepare.check_runs(legal.model, float_model, samples[0])
        raise InternalError(f"the result does not run: {error}", where="emit") from None
    held_out = data.held_out is not None
    doubt = notices.doubt_db(same, held_out, data.chosen, legal.findings.selected)
    return summed_up(found, held_out, samples.indices, doubt), both.layer_rows(found), found
