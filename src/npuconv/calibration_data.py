"""Checks of the float model and the samples before anything is quantized.

Check and convert share them, and fail with the same message. ``try_sample`` is only for check:
convert runs all samples. Of built-in ones it leaves out those that the model does not take, since
no user can mend them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import onnx

from npuconv import executor, files
from npuconv.config import Options
from npuconv.data import Feed, Samples, Source, open_samples, preparation
from npuconv.data.builtin import BuiltinData, choose_builtin, open_builtin
from npuconv.data.model_inputs import check_types, sample_inputs
from npuconv.data.samples import HELD_OUT_LEAST, spread
from npuconv.errors import CalibrationError, InternalError, ModelError, UsageError
from npuconv.legalize.legal import LegalModel
from npuconv.model.core import Model
from npuconv.quantize import calibrate as calibration
from npuconv.quantize.settings import BUDGET, CLIPPING, HESSIAN, PROBE, SENSITIVITY
from npuconv.report.builder import notices
from npuconv.schemas import quality
from npuconv.target import Target
from npuconv.timings import Step

_RUNS_ON = "models are measured on onnxruntime: export it with operators and types that it runs"


_KEPT = (
    "no calibration data: none is needed, all scales are kept from the model; figures are "
    "measured on built-in inputs"
)

HELD_OUT_SHARE, HELD_OUT_MAX = 4, 64  # one sample in four is held out, and no more than these


@dataclass(frozen=True)
class CalibrationData:
    """Samples that a model is calibrated on."""

    samples: Samples  # opened, and checked against the inputs
    assumed: str  # extents that were assumed for made-up samples; may be empty
    chosen: BuiltinData | None  # what is taken instead of data; None where data is given
    preparation: str  # how images become inputs, for the metadata; empty where none do

    @property
    def is_normalized(self) -> bool:
        """True if the user has normalized the samples, or has said how that is to be done."""
        return self.chosen is None or self.chosen.certainty == "given"

    @property
    def row(self) -> quality.Assumed | None:
        """Row of the report on what is taken instead of data."""
        return None if self.chosen is None else self.chosen.row

    @property
    def record(self) -> dict[str, Any]:
        """Return the rows of the report on the samples, as keywords of ``quality.Quantization``."""
        return {
            "samples": len(self.used),
            "source": self.samples.description,
            "synthetic": self.samples.synthetic,
        }

    @property
    def used(self) -> Samples:
        """Samples to calibrate with."""
        return self._parts[0]

    @property
    def held_out(self) -> Samples | None:
        """Samples that calibration does not see; None where there are too few."""
        return self._parts[1]

    def measured_on(self) -> Samples:
        """Return samples to measure the result on: those held out, or else all."""
        return (self.held_out or self.samples)[:HELD_OUT_MAX]

    def evaluation(self) -> list[Feed]:
        """Return samples to check a budget on: some held out, others where these are few."""
        found = list((self.held_out or self.used)[: BUDGET.evaluation_samples])
        more = BUDGET.evaluation_samples - len(found) if self.held_out else 0
        return [*found, *(self.used[k] for k in (spread(len(self.used), more) if more > 0 else ()))]

    def warnings(self, accuracy: quality.Accuracy, same: str) -> tuple[str, ...]:
        """Return what to say of the samples; ``same`` says in which way they are alike."""
        told = (accuracy, self.held_out is not None, self.chosen, same)
        return notices.about_samples(self.samples, self.assumed, *told)

    @cached_property
    def _parts(self) -> tuple[Samples, Samples | None]:
        spare = len(self.samples) - HELD_OUT_LEAST
        if spare < 0:
            return self.samples, None
        count = max(len(self.samples) // HELD_OUT_SHARE, min(spare, HELD_OUT_LEAST))
        return self.samples.split(min(count, HELD_OUT_MAX))


def check_layout(options: Options) -> None:
    """Refuse a layout that the form does not have: only integer convolutions exist as NHWC.

    Raises:
        UsageError: names both.
    """
    if options.layout == "nhwc" and options.format != "qoperator":
        raise UsageError(
            f"--layout nhwc: --format {options.format} has no such layout, only qoperator has",
            hint="add --format qoperator, or leave the layout at nchw",
        )


def with_form(options: Options) -> Options:
    """Return the options with form and opset of the output: those of the target by default.

    Raises:
        TargetError: not a valid target description.
        UsageError: a layout that the form does not have.
    """
    target = Target.load(options.target)
    options = options.for_target(target.container, target.opset)
    check_layout(options)
    return options


def load_float(model: Model, proto: onnx.ModelProto) -> None:
    """Load the float model, which finds operators and types that onnxruntime has no kernel for.

    Raises:
        ModelError: onnxruntime does not load it.
    """
    try:
        # More threads, or fusing nodes, take longer than loading.
        executor.Session(proto, threads=1, optimize=False)
    except executor.RuntimeRefusedError as error:
        check_types(model)  # says it better
        text = f"{model.name}: onnxruntime does not load it: {error}"
        raise ModelError(text, hint=_RUNS_ON) from None


def _check_options(legal: LegalModel) -> None:
    """Refuse options that the target or the system cannot follow.

    Raises:
        UsageError: layers are to run several times, with one scale for all weights.
        OutputError: the folder of the cache cannot be made.
    """
    options = legal.options
    if options.cache is not None:
        files.check_folder(options.cache)
    wanted = options.min_sqnr is not None or options.max_extra_macs
    if wanted and legal.target.weights.granularity == "tensor":
        raise UsageError(
            f"target {legal.target.name} has one scale for all weights of a layer: "
            "running a layer several times is not supported there",
            hint="leave out --min-sqnr and --max-extra-macs",
        )


def open_calibration(
    legal: LegalModel, proto: onnx.ModelProto, source: Source, cache: str | None = None
) -> CalibrationData:
    """Open the samples.

    Raises:
        CalibrationError: samples that are missing or do not fit, or that cannot be made up.
        UsageError: options that the target cannot follow.
        ModelError: an input or output of a type that no sample can have.
    """
    _check_options(legal)
    check_types(legal.model)
    specs, assumed = sample_inputs(legal.model, proto, source)
    options = legal.options
    if source is None:
        chosen = choose_builtin(legal.model, options.preprocess, legal.expected, specs)
        if legal.source_scales.is_complete(legal.model, legal.plan):
            chosen = replace(chosen, sentence=_KEPT, warning="")
        known = chosen.certainty != "unknown"
        said = preparation.record(chosen.for_images(specs), chosen.certainty) if known else ""
        return CalibrationData(open_builtin(options, chosen, specs), assumed, chosen, said)
    samples = open_samples(
        source,
        specs,
        options.preprocess,
        limit=options.max_samples,
        seed=options.seed,
        cache=cache,
        key=options.calibration_key,
    )
    said = preparation.record(options.preprocess, "given") if samples.prepared else ""
    return CalibrationData(samples, assumed, None, said)


def expected_costs(legal: LegalModel, samples: int, measured_on: int) -> dict[str, float]:
    """Return what the stages of a conversion cost, in float passes of one sample.

    Medians of six models: detectors, a classifier, text recognition, style transfer. Steps on
    weights depend on the layers instead, and are small where samples take long.
    """
    options = legal.options
    spends = options.min_sqnr is not None or bool(options.max_extra_macs)
    return {
        "host preparation": 1.4 * min(PROBE.samples, samples),
        "calibrate": samples + min(HESSIAN.samples, samples),
        "choose ranges": 6,
        "clip ranges": 10 * CLIPPING.probes if legal.plan.operators else 0,
        "round weights": 10,
        "sensitivity": 5 * SENSITIVITY.probes,
        "budget": 60 if spends else 0,
        "quantize": 2,
        "compare": 3 * measured_on,
    }


def try_sample(legal: LegalModel, proto: onnx.ModelProto, samples: Samples) -> None:
    """Run the first sample, with as much looked at as in a conversion.

    Raises:
        CalibrationError: the model does not run on it, or makes numbers that are not finite.
    """
    calibration.try_sample(legal, proto, samples)


def calibrate(
    graph: LegalModel, data: CalibrationData, step: Step
) -> tuple[CalibrationData, calibration.Calibration]:
    """Calibrate; where the model does not take some built-in samples, on the others.

    Raises:
        CalibrationError: samples of the user's that cannot be used, or the first of the built-in
            ones, with which check ends as well.
    """
    proto = graph.proto()
    try:
        return data, calibration.calibrate(graph, proto, data.used, step)
    except CalibrationError:
        if not data.samples.builtin:
            raise
        fewer = calibration.without_refused(graph, proto, data.samples)
        if fewer is data.samples or fewer.indices[0] != data.samples.indices[0]:
            raise
    data = replace(data, samples=fewer)
    return data, calibration.calibrate(graph, proto, data.used, step)


def check_runs(model: Model, proto: onnx.ModelProto, feed: Feed) -> None:
    """Run the float model once.

    Raises:
        ModelError: onnxruntime does not run it.
    """
    try:
        executor.Session(proto).run(feed)
    except executor.RuntimeRefusedError as error:
        raise ModelError(f"{model.name}: onnxruntime does not run it: {error}") from None


def check_loads(model: onnx.ModelProto) -> str:
    """Load a result that is not measured; return what to say about that, or nothing.

    Raises:
        InternalError: onnxruntime does not load it.
    """
    try:
        executor.Session(model, threads=1)
    except executor.RuntimeRefusedError as error:
        raise InternalError(f"the result does not load: {error}", where="emit") from None
    return executor.refusal(model)
