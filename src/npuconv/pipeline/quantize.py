"""Quantization of the legal float model to the requested form."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx

from npuconv import emit, executor
from npuconv.calibration.workers import one_thread_each
from npuconv.errors import InternalError, ModelError
from npuconv.evaluate import matching
from npuconv.evaluate.comparison import Comparison, Measured, summed_up
from npuconv.evaluate.layers import layers_of, stored
from npuconv.evaluate.matching import LayerPair
from npuconv.legalize import manager as _manager
from npuconv.legalize.described import describe
from npuconv.legalize.registry import Phase
from npuconv.model import save
from npuconv.pipeline.calibrated import judge, judge_result
from npuconv.pipeline.preflight import (
    check_options,
    device_graph,
    load_float,
    open_calibration,
)
from npuconv.quantize import sensitivity
from npuconv.quantize.budget import spend_budget
from npuconv.quantize.calibrate import Progress, calibrate
from npuconv.quantize.fake_quant import logits, quant_points
from npuconv.quantize.host_prep import pad_between_layers, prepare_host
from npuconv.quantize.oversampling import Oversampled
from npuconv.quantize.ranges import choose_encodings
from npuconv.quantize.rounding import round_weights
from npuconv.quantize.settings import BUDGET, SENSITIVITY
from npuconv.quantize.state import DeviceGraph, QuantState
from npuconv.report.builder import notices
from npuconv.report.builder.budget_rows import Crossing, budget_report, padding_report, renew_needs
from npuconv.report.builder.quantized import tensor_rows, weight_rows, with_shares
from npuconv.samples import Samples
from npuconv.samples.feeds import spread
from npuconv.schemas import report as schema

if TYPE_CHECKING:
    from npuconv.legalize.legal import Legalized
    from npuconv.quantize.calibrate import Calibration
    from npuconv.quantize.sensitivity import Sensitivity
    from npuconv.samples import Feed, Source

HELD_OUT_SHARE, HELD_OUT_MAX = 4, 64  # one sample in four stays out, and no more than these
HELD_OUT_LEAST = 8  # but so many, where as many are left to calibrate with
ASSUMED = "assumed: "  # begins a stage that says what is taken instead of data


@dataclass
class Quantized:
    """The converted model and what there is to say about it."""

    model: onnx.ModelProto
    quantization: schema.Quantization | None = None
    accuracy: schema.Accuracy | None = None
    warnings: tuple[str, ...] = ()
    assumed: schema.Assumed | None = None


def quantize(work: Legalized, source: Source, progress: Progress) -> Quantized:
    """Make the output model.

    Args:
        work: a legalized model without blocking findings; changed.
        source: calibration samples; None for builtin pictures or made-up numbers.
        progress: called with a stage and how far it is.

    Raises:
        CalibrationError: samples that cannot be used.
        ModelError: onnxruntime does not load the float model.
        InternalError: a bug in a pass, or a result that does not run.
    """
    form = emit.get(work.options.format)
    float_proto = save.to_proto(work.model)
    load_float(work, float_proto)
    if form.calibrates:
        with one_thread_each():
            return _with_samples(work, form, float_proto, source, progress)
    _run(work, form)
    proto = save.to_proto(work.model, _metadata(work))
    _check_loads(proto)
    unscaled = schema.Quantization(
        format=form.name, method="none", samples=0, source="none", synthetic=False
    )
    unused = notices.unused(form.name, work.options, samples=source is not None)
    warnings = (
        *notices.nothing_left(work.plan),
        *unused,
        *notices.still_float(work.model, work.options),
    )
    return Quantized(proto, unscaled if form.phases else None, warnings=warnings)


def _with_samples(
    work: Legalized,
    form: emit.Format,
    float_proto: onnx.ModelProto,
    source: Source,
    progress: Progress,
) -> Quantized:
    """Quantize with activations: every step in its order, each from values to values."""
    check_options(work)
    opened = open_calibration(work, float_proto, source, work.options.cache)
    samples, assumed, chosen = opened.samples, opened.assumed, opened.chosen
    if chosen is not None:
        progress(f"{ASSUMED}{chosen.sentence}", 0, len(samples))  # before anything else is said
    used, kept = _split(samples)
    held_out = (kept or samples)[:HELD_OUT_MAX]
    # What is made up, or normalized by a guess, says nothing of the grid that pixels lie on.
    without = (*work.options.without, *(("input-grid",) if samples.synthetic else ()))
    with work.timed("host preparation"):
        graph, grids = prepare_host(device_graph(work), used, without)
    if _settle(work, graph):
        float_proto = save.to_proto(work.model)
    with work.timed("calibrate"):
        seen = calibrate(graph, float_proto, used, progress)
    with work.timed("choose ranges"):
        state = choose_encodings(graph, seen, grids, without)
    with work.timed("round weights"):
        state = round_weights(graph, seen.hessians, state, without)
    with work.timed("sensitivity"):
        errors = _sensitivity(graph, state, used)
    before = Crossing.of(graph, state, errors)
    with work.timed("host padding"):
        graph, seen, state, errors = pad_between_layers(graph, seen, state, errors, without)
    padding = padding_report(before, Crossing.of(graph, state, errors))
    if _settle(work, graph):
        float_proto = save.to_proto(work.model)
    judge(work, float_proto, used, seen.statistics, state)
    tensors, layers = tensor_rows(work.plan, state, seen.statistics), layers_of(work)
    weights = weight_rows(work, state)
    made, budget = _spend(work, graph, state, seen, (used, kept))
    if made.graph is not graph:
        with work.timed("sensitivity"):
            errors = _sensitivity(made.graph, made.state, used)
    shares = {} if errors is None else errors.layers(made.copy_of)
    _hand_over(work, made.state)
    _run(work, form)
    proto = save.to_proto(work.model, _metadata(work))
    ends = stored(work, layers, made)
    found, rows = _compare(work, float_proto, proto, held_out, ends)
    same = notices.sameness(samples)
    doubt = notices.doubt_db(same, kept is not None, chosen)
    measured = summed_up(found, kept is not None, held_out.indices, doubt)
    judge_result(work, measured, found.broken)
    proto.metadata_props.add(key=matching.KEY, value=matching.record(ends))
    report = schema.Quantization(
        format=form.name,
        method=work.options.method,
        samples=len(used),
        source=samples.description,
        synthetic=samples.synthetic,
        tensors=tensors,
        layers=with_shares(rows, layers, shares, state.roundings, weights),
        budget=budget,
        host_padding=padding,
    )
    warnings = notices.nothing_left(work.plan) or notices.about_samples(
        samples, assumed, measured, kept is not None, chosen, same
    )
    told = (*warnings, *notices.still_float(work.model, work.options), *seen.notes)
    return Quantized(proto, report, measured, told, None if chosen is None else chosen.row)


def _spend(
    work: Legalized,
    graph: DeviceGraph,
    state: QuantState,
    seen: Calibration,
    samples: tuple[Samples, Samples | None],
) -> tuple[Oversampled, schema.Budget | None]:
    """Buy accuracy, where ``--min-sqnr`` or ``--max-extra-macs`` allows it."""
    if work.options.min_sqnr is None and not work.options.max_extra_macs:
        return Oversampled(graph, state), None
    with work.timed("budget"):
        used, evaluation = samples[0], _evaluation(*samples)
        spent = spend_budget(graph, state, seen.hessians, used, evaluation)
    made, budget = spent.oversampled, budget_report(work, spent)
    _settle(work, made.graph)
    renew_needs(work)
    return made, budget


def _settle(work: Legalized, graph: DeviceGraph) -> bool:
    """Take over the plan of a graph; return whether it was changed."""
    changed = graph.plan is not work.plan
    if changed:
        work.plan = graph.plan
        describe(work)
    return changed


def _evaluation(used: Samples, kept: Samples | None) -> list[Feed]:
    """Return the held-out samples, and some of those calibrated with where they are few."""
    found = list((kept or used)[: BUDGET.evaluation_samples])
    more = BUDGET.evaluation_samples - len(found) if kept else 0
    return [*found, *(used[k] for k in (spread(len(used), more) if more > 0 else ()))]


def _sensitivity(graph: DeviceGraph, state: QuantState, used: Samples) -> Sensitivity | None:
    """Return what every rounding adds to the error of the outputs; None where that is unknown."""
    points, ends = quant_points(graph, state), logits(graph.proto())
    return sensitivity.measure(ends, points, state, used, SENSITIVITY.probes)


def _hand_over(work: Legalized, state: QuantState) -> None:
    """Tell the passes how tensors and weights are stored."""
    encodings = state.encodings
    work.ctx.encodings, work.ctx.rounded = dict(encodings), dict(state.weights)
    work.ctx.ends = {
        conv.name: (encodings[conv.inputs[0].name], encodings[conv.outputs[0].name])
        for conv in work.plan.device
    }


def _split(samples: Samples) -> tuple[Samples, Samples | None]:
    """Keep a few samples from calibration, to measure on; none if there are too few."""
    spare = len(samples) - HELD_OUT_LEAST
    if spare < 0:
        return samples, None
    count = max(len(samples) // HELD_OUT_SHARE, min(spare, HELD_OUT_LEAST))
    return samples.split(min(count, HELD_OUT_MAX))


def _run(work: Legalized, form: emit.Format) -> None:
    work.ctx.plan = work.plan
    work.ctx.verify = False  # int8 is compared as a whole: it is not meant to be equal
    start = time.perf_counter()
    for phase in form.phases:
        _manager.run_phase(work.model, Phase(phase), work.ctx)
    work.timings.append(("quantize", time.perf_counter() - start))


def _compare(
    work: Legalized,
    float_proto: onnx.ModelProto,
    proto: onnx.ModelProto,
    samples: Samples,
    layers: list[LayerPair],
) -> tuple[Measured, tuple[schema.LayerQuant, ...]]:
    """Measure the error of outputs and layers."""
    start = time.perf_counter()
    try:
        both = Comparison(float_proto, proto, work.model.scales, layers)
        found = both.measure(samples, layer_samples=1)
    except executor.RuntimeRefusedError as error:
        _blame_source(float_proto, work.model.name, samples[0])
        raise InternalError(f"the result does not run: {error}", where="emit") from None
    work.timings.append(("compare", time.perf_counter() - start))
    return found, both.layer_rows(found)


def _check_loads(proto: onnx.ModelProto) -> None:
    """Raise InternalError if the result does not load; a form with calibration is run anyway."""
    try:
        executor.Session(proto)
    except executor.RuntimeRefusedError as error:
        raise InternalError(f"the result does not load: {error}", where="emit") from None


def _blame_source(before: onnx.ModelProto, name: str, feed: Feed) -> None:
    """Raise ModelError if the float model does not run."""
    try:
        executor.Session(before).run(feed)
    except executor.RuntimeRefusedError as error:
        raise ModelError(f"{name}: onnxruntime does not run it: {error}") from None


def _metadata(work: Legalized) -> dict[str, str]:
    from npuconv.version import __version__

    entries = {
        "npuconv.version": __version__,
        "npuconv.format": work.options.format,
        "npuconv.target": work.target.name,
        "npuconv.target_sha256": work.target.sha256,
        "npuconv.source_sha256": work.model.sha256,
    }
    return {**entries, **_scale_entries(work.model.scales)}


def _scale_entries(scales: Mapping[str, float]) -> dict[str, str]:
    """Scales of int8 inputs and outputs: nothing else in the file says them."""
    return {f"npuconv.scale.{name}": repr(scale) for name, scale in scales.items()}
