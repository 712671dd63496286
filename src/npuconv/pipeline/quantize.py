"""From the legal float model to the form that was asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import onnx

from npuconv import calibration, emit, executor
from npuconv.errors import CalibrationError, InternalError
from npuconv.model import query, save
from npuconv.passes import Phase, _manager
from npuconv.pipeline import accuracy as measuring
from npuconv.pipeline import inputs as shaping
from npuconv.pipeline.assemble import describe
from npuconv.plan import EXACT_ON_INT8, Group, Plan, make_plan
from npuconv.report import schema
from npuconv.samples import Samples, open_samples

if TYPE_CHECKING:
    from npuconv.model.types import Node
    from npuconv.pipeline.legalize import Legalized
    from npuconv.quant.observers import Observer
    from npuconv.samples import Source

Progress = Callable[[str, int, int], None]  # stage, done, total
HELD_OUT_SHARE, HELD_OUT_MAX = 8, 8  # one sample in eight, eight at most, stay out
UNLIKE = 4.0  # inputs of a Concat whose ranges differ more than this keep their own scales


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
        InternalError: a bug in a pass, or a result that does not run.
    """
    form = emit.get(work.options.format)
    metadata = _metadata(work)
    if not form.phases:
        proto = save.to_proto(work.model, metadata)
        _check_loads(proto)
        return Quantized(proto, warnings=_still_float(work))
    if not form.calibrates:
        _run(work, form)
        proto = save.to_proto(work.model, metadata)
        _check_loads(proto)
        return Quantized(proto, _unscaled(work), warnings=_still_float(work))
    return _calibrated(work, form, source, metadata, progress)


def _check_loads(proto: onnx.ModelProto) -> None:
    """What is written must load; a form with calibration is run anyway."""
    try:
        executor.Session(proto)
    except executor.RuntimeRefusedError as error:
        raise InternalError(f"the result does not load: {error}", where="emit") from None


def _calibrated(
    work: Legalized,
    form: emit.Format,
    source: Source,
    metadata: dict[str, str],
    progress: Progress,
) -> Quantized:
    float_proto = save.to_proto(work.model)
    specs, assumed = shaping.sample_inputs(work.model, float_proto, source)
    options = work.options
    samples = open_samples(
        source, specs, options.preprocess, limit=options.max_samples, seed=options.seed
    )
    used, kept = _split(samples)
    observers = _observe(work, float_proto, used, progress)
    _keep_unlike_apart(work, observers)
    ranges = _choose(work, observers)
    work.ctx.plan, work.ctx.ranges = work.plan, ranges
    tensors = _tensor_rows(work.plan, ranges)
    layers = _layers(work)
    _run(work, form)
    proto = save.to_proto(work.model, {**metadata, **_scale_metadata(work.model.scales)})
    stored = _stored_layers(work, layers)
    start = time.perf_counter()
    checked = kept if kept is not None else samples
    found, rows = _compare(work, float_proto, proto, checked, kept is not None, stored)
    work.timings.append(("compare", time.perf_counter() - start))
    warnings = _warnings(samples, assumed, found, kept is not None) + _still_float(work)
    report = schema.Quantization(
        format=options.format,
        method=options.method,
        samples=len(used),
        source=samples.description,
        synthetic=samples.synthetic,
        tensors=tensors,
        layers=rows,
    )
    return Quantized(proto, report, found, warnings)


def _run(work: Legalized, form: emit.Format) -> None:
    work.ctx.plan = work.plan
    work.ctx.verify = False  # int8 is compared as a whole: it is not meant to be equal
    start = time.perf_counter()
    for phase in form.phases:
        _manager.run_phase(work.model, Phase(phase), work.ctx)
    work.timings.append(("quantize", time.perf_counter() - start))


def _split(samples: Samples) -> tuple[Samples, Samples | None]:
    """Keep a few samples from calibration, to measure on; none if there are too few."""
    count = min(len(samples) // HELD_OUT_SHARE, HELD_OUT_MAX)
    return samples.split(count) if count else (samples, None)


def _observe(
    work: Legalized, proto: onnx.ModelProto, samples: Samples, progress: Progress
) -> dict[str, Observer]:
    start, done = time.perf_counter(), 0

    def step() -> None:
        nonlocal done
        done += 1
        progress("calibrating", done, len(samples))

    names = list(dict.fromkeys(_watched(work.plan)))
    observers = calibration.observe(proto, names, samples, step)
    work.timings.append(("calibrate", time.perf_counter() - start))
    return observers


def _watched(plan: Plan) -> list[str]:
    ends = [name for group in plan.groups for name in group.ends]
    for node in _concats(plan):
        ends += [t.name for t in (*node.inputs, *node.outputs)]
    return ends


def _concats(plan: Plan) -> list[Node]:
    """Carried operators that make several tensors share a scale."""
    return [n for n in plan.carried if EXACT_ON_INT8[n.op] is None]


def _keep_unlike_apart(work: Legalized, observers: Mapping[str, Observer]) -> None:
    """A Concat of boxes and scores would cost the smaller of them its precision."""
    apart = [n.name for n in _concats(work.plan) if _unlike(n, observers)]
    if apart:
        work.plan = make_plan(work.model, work.target, work.blocked, apart)
        describe(work)


def _unlike(node: Node, observers: Mapping[str, Observer]) -> bool:
    spans = [observers[t.name].absmax("minmax") for t in node.inputs]
    return min(spans) * UNLIKE < max(spans)


def _choose(work: Legalized, observers: Mapping[str, Observer]) -> dict[str, calibration.Range]:
    start = time.perf_counter()
    groups = {group.name: group.ends for group in work.plan.groups}
    ranges = calibration.choose(observers, groups, work.options.method)
    work.timings.append(("ranges", time.perf_counter() - start))
    return ranges


def _tensor_rows(
    plan: Plan, ranges: Mapping[str, calibration.Range]
) -> tuple[schema.TensorQuant, ...]:
    rows = []
    for name, group in plan.group_of().items():
        found = ranges[group.name]
        rows.append(
            schema.TensorQuant(
                name=name,
                scale=_decimal(found.qparams.scale),
                zero_point=found.qparams.zero_point,
                minimum=_decimal(np.float32(found.minimum)),
                maximum=_decimal(np.float32(found.maximum)),
                clip_fraction=round(found.clip_fraction, 6),
            )
        )
    return tuple(rows)


def _decimal(value: np.float32) -> float:
    """The shortest decimal that stands for the same float32."""
    return float(str(value))


def _layers(work: Legalized) -> list[tuple[Node, str, Group]]:
    """Every device convolution with the tensor that is its layer's result."""
    groups = work.plan.group_of()
    rows = []
    for conv in work.plan.device:
        tensor = conv.outputs[0]
        reader = query.sole_consumer(work.model, tensor)
        # A layer ends behind its activation: what that cuts off is no loss.
        if reader is not None and reader.op in ("Relu", "Clip") and work.plan.is_carried(reader):
            tensor = reader.outputs[0]
        rows.append((work.model.label(conv), tensor.name, groups[tensor.name]))
    return rows


def _stored_layers(work: Legalized, layers: list[tuple[Node, str, Group]]) -> list[measuring.Layer]:
    ctx = work.ctx
    return [
        measuring.Layer(
            str(label),
            tensor,
            ctx.stored[tensor],
            float(ctx.ranges[group.name].qparams.scale),
            ctx.notes.get(str(label), ""),
        )
        for label, tensor, group in layers
        if tensor in ctx.stored
    ]


def _compare(
    work: Legalized,
    float_proto: onnx.ModelProto,
    proto: onnx.ModelProto,
    samples: Samples,
    held_out: bool,
    layers: list[measuring.Layer],
) -> tuple[schema.Accuracy, tuple[schema.LayerQuant, ...]]:
    few = samples[:HELD_OUT_MAX]
    scales = work.model.scales
    try:
        found = measuring.end_to_end(float_proto, proto, few, scales, held_out)
        rows = measuring.per_layer(float_proto, proto, few[0], layers, scales)
    except executor.RuntimeRefusedError as error:
        raise InternalError(f"the result does not run: {error}", where="emit") from None
    return found, rows


def _warnings(
    samples: Samples, assumed: str, found: schema.Accuracy, held_out: bool
) -> tuple[str, ...]:
    warnings = []
    if samples.synthetic:
        warnings.append(SYNTHETIC)
    if assumed:
        warnings.append(assumed)
    if found.sqnr_db is not None and found.sqnr_db < measuring.POOR_DB:
        warnings.append(f"accuracy is poor: {found.sqnr_db:.1f} dB SQNR against the float model")
    if found.cosine is None:
        warnings.append("an output is all zeros or not finite")
    if not held_out and not samples.synthetic:
        warnings.append("too few samples to keep some apart: measured on those calibrated with")
    warnings.extend(samples.notes)
    return tuple(warnings)


def _still_float(work: Legalized) -> tuple[str, ...]:
    """What ``io=int8`` could not make int8: the host reads or makes it."""
    tensors = [*work.model.graph.inputs, *work.model.graph.outputs]
    names = [t.name for t in tensors if query.dtype_name(t).startswith("float")]
    if work.options.io != "int8" or not names:
        return ()
    return (f"some inputs or outputs stay float: {', '.join(names)}",)


SYNTHETIC = (
    "accuracy is unproven, calibrated on synthetic inputs: 10 to 30 dB are usually lost; "
    "give --calibration with a handful of real inputs"
)


def _metadata(work: Legalized) -> dict[str, str]:
    from npuconv import __version__

    return {
        "npuconv.version": __version__,
        "npuconv.format": work.options.format,
        "npuconv.target": work.target.name,
        "npuconv.target_sha256": work.target.sha256,
        "npuconv.source_sha256": work.model.sha256,
    }


def _scale_metadata(scales: Mapping[str, float]) -> dict[str, str]:
    """Scales of int8 inputs and outputs: nothing else in the file says them."""
    return {f"npuconv.scale.{name}": repr(scale) for name, scale in scales.items()}


def _unscaled(work: Legalized) -> schema.Quantization:
    return schema.Quantization(
        format=work.options.format, method="none", samples=0, source="none", synthetic=False
    )


__all__ = ["SYNTHETIC", "CalibrationError", "Progress", "Quantized", "quantize"]
