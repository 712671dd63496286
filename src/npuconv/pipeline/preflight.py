"""Checks of the float model and the samples before anything is quantized.

Check and convert share them, and fail with the same message. ``try_sample`` is only for check:
convert runs all samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from npuconv import executor, files
from npuconv.calibration.builtin import BuiltinData, choose_builtin, open_builtin
from npuconv.calibration.inputs import check_types, sample_inputs
from npuconv.errors import ModelError, UsageError
from npuconv.legalize import kept
from npuconv.partition import Plan, make_plan
from npuconv.quantize.calibrate import try_sample as calibrate_one
from npuconv.quantize.state import DeviceGraph
from npuconv.samples import open_samples

if TYPE_CHECKING:
    import onnx

    from npuconv.legalize.legal import Legalized
    from npuconv.model.core import Model
    from npuconv.samples import Samples, Source

_RUNS_ON = "models are measured on onnxruntime: export it with operators and types that it runs"


@dataclass(frozen=True)
class CalibrationData:
    """Samples that a model is calibrated on.

    Attributes:
        samples: opened, and checked against the inputs.
        assumed: extents that were assumed for made-up samples; may be empty.
        chosen: what is taken instead of data; None where data is given.
    """

    samples: Samples
    assumed: str
    chosen: BuiltinData | None


def load_float(work: Legalized, proto: onnx.ModelProto) -> executor.Session:
    """Load the float model, which finds operators and types that onnxruntime has no kernel for.

    Args:
        work: a legalized model without blocking findings.
        proto: the same.

    Raises:
        ModelError: onnxruntime does not load it.
    """
    try:
        return executor.Session(proto)
    except executor.RuntimeRefusedError as error:
        check_types(work.model)  # says it better
        text = f"{work.model.name}: onnxruntime does not load it: {error}"
        raise ModelError(text, hint=_RUNS_ON) from None


def check_options(work: Legalized) -> None:
    """Refuse options that the target or the system cannot follow.

    Raises:
        UsageError: layers are to run several times, with one scale for all weights.
        OutputError: the folder of the cache cannot be made.
    """
    options = work.options
    if options.cache is not None:
        files.check_folder(options.cache)
    wanted = options.min_sqnr is not None or options.max_extra_macs
    if wanted and work.target.weights.granularity == "tensor":
        raise UsageError(
            f"target {work.target.name} has one scale for all weights of a layer: "
            "running a layer several times is not supported there",
            hint="leave out --min-sqnr and --max-extra-macs",
        )


def open_calibration(
    work: Legalized, proto: onnx.ModelProto, source: Source, cache: str | None = None
) -> CalibrationData:
    """Open the samples.

    Args:
        work: a legalized model.
        proto: the same.
        source: None for builtin pictures or made-up numbers.
        cache: folder of decoded images.

    Raises:
        CalibrationError: samples that are missing or do not fit, or that cannot be made up.
        ModelError: an input or output of a type that no sample can have.
    """
    check_types(work.model)
    specs, assumed = sample_inputs(work.model, proto, source)
    options = work.options
    if source is None:
        chosen = choose_builtin(work.model, options.preprocess, work.ctx.expected, specs)
        return CalibrationData(open_builtin(options, chosen, specs), assumed, chosen)
    samples = open_samples(
        source,
        specs,
        options.preprocess,
        limit=options.max_samples,
        seed=options.seed,
        cache=cache,
    )
    return CalibrationData(samples, assumed, None)


def try_sample(work: Legalized, proto: onnx.ModelProto, samples: Samples) -> None:
    """Run the first sample, with as much looked at as in a conversion.

    Raises:
        CalibrationError: the model does not run on it, or makes numbers that are not finite.
    """
    calibrate_one(device_graph(work), proto, samples)


def device_graph(work: Legalized) -> DeviceGraph:
    """Return the model as the steps of quantization take it."""

    def plan(model: Model) -> Plan:
        names = kept.names(model, work.kept)
        return make_plan(model, work.target, work.blocked, kept=names)

    return DeviceGraph(work.model, work.plan, work.target, work.options, work.ctx, plan)
