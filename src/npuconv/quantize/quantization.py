"""Quantization of a legal float model: its steps, in their order.

Each step takes values and returns values; a step that changes the graph returns another graph.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from npuconv.config import Options
from npuconv.data.calibration_data import CalibrationData
from npuconv.data.workers import start_work
from npuconv.legalize.legal import LegalModel
from npuconv.quantize import settings
from npuconv.quantize.budget import BudgetResult, spend_budget
from npuconv.quantize.calibrate import Calibration, calibrate_on, calibration_findings
from npuconv.quantize.clipping import clip_ranges
from npuconv.quantize.fake_quant import quant_points, with_logit_outputs
from npuconv.quantize.host_prep import pad_between_layers, prepare_host
from npuconv.quantize.oversampling import Oversampled
from npuconv.quantize.ranges import RangeChoice, choose_encodings
from npuconv.quantize.rounding import round_weights
from npuconv.quantize.sensitivity import Sensitivity, measure
from npuconv.quantize.split import SplitGraph, split_quantized
from npuconv.quantize.state import QuantState
from npuconv.records import dataclass
from npuconv.timings import Timings


@dataclass(frozen=True)
class QuantizedGraph:
    """A float graph, and the integers of its tensors and weights."""

    graph: LegalModel
    state: QuantState
    sensitivity: Callable[[], Sensitivity | None]  # wait for the error of the outputs by rounding


@dataclass(frozen=True)
class Quantization:
    """Result of all steps, and of those whose gain the report shows."""

    data: CalibrationData  # samples, without built-in samples that the model does not take
    calibration: Calibration  # statistics of the float pass
    unpadded: QuantizedGraph  # graph in which the host pads no tensors between layers
    padded: QuantizedGraph  # graph with these pads, and with the findings on calibration
    budget: BudgetResult | None  # None without a budget
    oversampled: Oversampled  # graph with the layers that the budget repeats
    sensitivity: Callable[[], Sensitivity | None]  # that of the oversampled graph
    parts: SplitGraph  # the graph to write, whose convolutions are those of the device

    def error_powers(self) -> dict[str, float]:
        """Wait for the error of the outputs by layer of ``padded``; empty if unknown."""
        sensitivity = self.sensitivity()
        return {} if sensitivity is None else sensitivity.layers(self.oversampled.copy_of)


def quantize(legal: LegalModel, data: CalibrationData, clock: Timings) -> Quantization:
    """Choose scales and zero points of tensors, and integer weights.

    ``legal`` has whole layers, those beyond a limit too.

    Raises:
        CalibrationError: the model does not run on the samples.
    """
    clock.expect(_expected_costs(legal.options, data, clips=bool(legal.plan.operators)))
    with clock.measured("calibrate"):
        data, calibration = calibrate_on(legal, data, clock.step)
    with clock.measured("host preparation"):
        graph, calibration = prepare_host(legal, calibration)
    if graph is not legal and not calibration.fits(graph):
        with clock.measured("calibrate"):
            data, calibration = calibrate_on(graph, data, clock.step)
    with clock.measured("choose ranges"):
        state = RangeChoice(graph, calibration).encode()
    with clock.measured("clip ranges"):
        state = clip_ranges(graph, calibration, state, data.used, clock.step)
    if graph.device.free_zero:  # only now: a step of clipping may turn a choice between ranges
        state = choose_encodings(graph, calibration, shares=state.shares)
    with clock.measured("round weights"):
        state = round_weights(graph, calibration.hessians, state, step=clock.step)
    with clock.measured("sensitivity"):
        sensitivity = _start_sensitivity(graph, state, data)
    unpadded = QuantizedGraph(graph, state, sensitivity)
    with clock.measured("host padding"):
        graph, state, sensitivity = pad_between_layers(graph, calibration, state, sensitivity)
    with clock.measured("rules of calibration"):
        graph = graph.with_findings(calibration_findings(graph, data, calibration, state))
    padded = QuantizedGraph(graph, state, sensitivity)
    budget, oversampled = None, Oversampled(graph, state)
    if legal.options.has_budget:
        with clock.measured("budget"):
            feeds = data.evaluation(settings.BUDGET_EVALUATION_SAMPLES)
            budget = spend_budget(graph, state, calibration.hessians, data.used, feeds, clock.step)
            oversampled = budget.oversampled
    if oversampled.repeated:
        with clock.measured("sensitivity"):
            sensitivity = _start_sensitivity(oversampled.graph, oversampled.state, data)
    with clock.measured("split layers"):
        parts = split_quantized(oversampled.graph, oversampled.state)
    return Quantization(
        data, calibration, unpadded, padded, budget, oversampled, sensitivity, parts
    )


def _start_sensitivity(
    graph: LegalModel, state: QuantState, data: CalibrationData
) -> Callable[[], Sensitivity | None]:
    """Start to measure the sensitivity; return a wait for it, as few of the next steps need it."""
    model, points = with_logit_outputs(graph.proto), quant_points(graph, state)
    return start_work(partial(measure, model, points, data.used, settings.SENSITIVITY_PROBES))


def _expected_costs(options: Options, data: CalibrationData, *, clips: bool) -> dict[str, float]:
    """Return the costs of the stages of a conversion, in float passes of one sample.

    A number is the cost of the stage, or of a sample or random vector in it: the median of six
    models (detectors, a classifier, text recognition, style transfer). The cost of steps on
    weights depends on the layers, and is small where samples take long.
    """
    samples = len(data.used)
    return {
        "calibrate": samples,
        "choose ranges": 6,
        "clip ranges": 10 * settings.CLIPPING_PROBES if clips else 0,
        "round weights": 10,
        "budget": 60 if options.has_budget else 0,
        "quantize": 2,
        "compare": 3 * len(data.measured_on()),
    }
