"""From the legal float model to the form that was asked for."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx

from npuconv import emit, executor
from npuconv.errors import InternalError, ModelError
from npuconv.model import save
from npuconv.passes import Phase, _manager
from npuconv.pipeline import warned
from npuconv.pipeline.accuracy import comparison, matching
from npuconv.pipeline.calibrated import judge, judge_result
from npuconv.pipeline.host import aligning, padding
from npuconv.pipeline.inputs import sample_inputs
from npuconv.pipeline.layers import Layer, layers_of, stored
from npuconv.pipeline.precision.budget import buy
from npuconv.pipeline.precision.reuse import reuse
from npuconv.pipeline.ranges import calibrate, tune
from npuconv.pipeline.reporting.assemble import describe
from npuconv.pipeline.reporting.quantized import tensor_rows, weight_rows, with_shares
from npuconv.report import schema
from npuconv.samples import Samples, open_samples

if TYPE_CHECKING:
    from npuconv.pipeline.legalize import Legalized
    from npuconv.pipeline.ranges.calibrate import Calibrated, Progress
    from npuconv.samples import Feed, Source

HELD_OUT_SHARE, HELD_OUT_MAX = 8, 8  # one sample in eight, eight at most, stay out


@dataclass
class Quantized:
    """The converted model and what there is to say about it."""

    model: onnx.ModelProto
    quantization: schema.Quantization | None = None
    accuracy: schema.Accuracy | None = None
    warnings: tuple[str, ...] = ()


def quantize(work: Legalized, source: Source, progress: Progress) -> Quantized:
    """Make the output model.

    Args:
        work: a legalized model without blocking findings; changed.
        source: calibration samples; None for synthetic ones.
        progress: called with a stage and how far it is.

    Raises:
        CalibrationError: samples that cannot be used.
        ModelError: onnxruntime does not load the float model.
        InternalError: a bug in a pass, or a result that does not run.
    """
    form = emit.get(work.options.format)
    if form.calibrates:
        return _with_samples(work, form, source, progress)
    before = save.to_proto(work.model)
    _run(work, form)
    proto = save.to_proto(work.model, _metadata(work))
    _check_loads(proto, before, work.model.name)
    unscaled = schema.Quantization(
        format=form.name, method="none", samples=0, source="none", synthetic=False
    )
    unused = warned.unused(form.name, work.options, samples=source is not None)
    warnings = (*warned.nothing_left(work), *unused, *warned.still_float(work))
    return Quantized(proto, unscaled if form.phases else None, warnings=warnings)


def _with_samples(
    work: Legalized, form: emit.Format, source: Source, progress: Progress
) -> Quantized:
    float_proto = save.to_proto(work.model)
    samples, assumed = _open(work, float_proto, source)
    if samples.synthetic:
        progress("synthetic", 0, len(samples))  # before anything else is said
    used, kept = _split(samples)
    on_grids = aligning.grids(work, used)  # what the host pads is aligned after that
    if padding.pad(work, float_proto, used, on_grids) | aligning.align(work, on_grids):
        float_proto = save.to_proto(work.model)
    judges = (kept or samples)[:HELD_OUT_MAX]
    found = calibrate.calibrate(work, float_proto, used, kept, progress)
    before = found.proto
    found = reuse(work, found, used, kept)
    float_proto = found.proto
    work.ctx.rounded.update(found.chosen.rounded)
    judge(work, float_proto, used, found.stats, found.encodings.by_tensor)
    tensors, layers = tensor_rows(work.plan, found), layers_of(work)
    weights = weight_rows(work, found)
    found, budget = buy(work, float_proto, found, used, _deciding(work, used, kept, judges))
    costs = tune.measure_shares(work, save.to_proto(work.model), found, used)
    if budget is not None:
        describe(work)
    _hand_over(work, found)
    _run(work, form)
    proto = save.to_proto(work.model, _metadata(work))
    measured, rows, broken = _compare(work, before, proto, judges, kept is not None, layers)
    judge_result(work, measured, broken)
    proto.metadata_props.add(key=matching.KEY, value=matching.record(stored(work, layers)))
    report = schema.Quantization(
        format=form.name,
        method=work.options.method,
        samples=len(used),
        source=samples.description,
        synthetic=samples.synthetic,
        tensors=tensors,
        layers=with_shares(rows, layers, costs, found.chosen.labels, weights),
        budget=budget,
    )
    warnings = warned.nothing_left(work) or warned.about_samples(
        samples, assumed, measured, kept is not None
    )
    return Quantized(proto, report, measured, (*warnings, *warned.still_float(work), *found.notes))


def _deciding(
    work: Legalized, used: Samples, kept: Samples | None, judges: Samples
) -> Sequence[Feed]:
    """What a budget is spent on: a goal is for samples kept apart, else more of them tell more."""
    return list(judges) if work.options.min_sqnr is not None else calibrate.jury(used, kept)


def _hand_over(work: Legalized, found: Calibrated) -> None:
    """Tell the passes how tensors are stored."""
    encodings = found.encodings.by_tensor
    work.ctx.encodings = dict(encodings)
    work.ctx.ends = {
        conv.name: (encodings[conv.inputs[0].name], encodings[conv.outputs[0].name])
        for conv in work.plan.device
    }


def _open(work: Legalized, proto: onnx.ModelProto, source: Source) -> tuple[Samples, str]:
    specs, assumed = sample_inputs(work.model, proto, source)
    options = work.options
    samples = open_samples(
        source,
        specs,
        options.preprocess,
        limit=options.max_samples,
        seed=options.seed,
        cache=options.cache,
    )
    return samples, assumed


def _split(samples: Samples) -> tuple[Samples, Samples | None]:
    """Keep a few samples from calibration, to measure on; none if there are too few."""
    count = min(len(samples) // HELD_OUT_SHARE, HELD_OUT_MAX)
    return samples.split(count) if count else (samples, None)


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
    held_out: bool,
    layers: list[Layer],
) -> tuple[schema.Accuracy, tuple[schema.LayerQuant, ...], tuple[str, ...]]:
    """How far outputs and layers are off, and the outputs that only int8 makes not finite."""
    start = time.perf_counter()
    try:
        both = comparison.Comparison(float_proto, proto, work.model.scales, stored(work, layers))
        found, rows = both.end_to_end(samples, held_out=held_out), both.per_layer(samples[0])
    except executor.RuntimeRefusedError as error:
        _blame_source(float_proto, work.model.name, samples[0])
        raise InternalError(f"the result does not run: {error}", where="emit") from None
    work.timings.append(("compare", time.perf_counter() - start))
    return found, rows, both.broken


def _check_loads(proto: onnx.ModelProto, before: onnx.ModelProto, name: str) -> None:
    """What is written must load; a form with calibration is run anyway."""
    try:
        executor.Session(proto)
    except executor.RuntimeRefusedError as error:
        _blame_source(before, name)
        raise InternalError(f"the result does not load: {error}", where="emit") from None


def _blame_source(before: onnx.ModelProto, name: str, feed: Feed | None = None) -> None:
    """Nothing, if the float model loads and runs."""
    try:
        session = executor.Session(before)
        if feed is not None:
            session.run(feed)
    except executor.RuntimeRefusedError as error:
        verb = "run" if feed is not None else "load"
        raise ModelError(f"{name}: onnxruntime does not {verb} it: {error}") from None


def _metadata(work: Legalized) -> dict[str, str]:
    from npuconv import __version__

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
