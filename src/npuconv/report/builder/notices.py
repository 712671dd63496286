"""Sentences of the report: warnings, and options that a check cannot judge."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from npuconv.config import Options
from npuconv.data import Feed, Samples
from npuconv.data.calibration_data import CalibrationData
from npuconv.data.samples import HELD_OUT_LEAST
from npuconv.evaluate import interval
from npuconv.findings import Finding, Severity
from npuconv.legalize.legal import LegalModel
from npuconv.legalize.selection import fails, is_blocking, select_findings
from npuconv.model import Model, query, window
from npuconv.partition.placement import Plan
from npuconv.rules.checks.accuracy_too_low import accuracy_too_low
from npuconv.rules.checks.normalization_implausible import normalization_implausible
from npuconv.rules.engine import all_rules
from npuconv.schemas import quality

SAME_SHARE = 1e-3  # mean squared difference over variance up to which samples are the same
_SUMS = "weight_abs_sum_max"
LATER = "all samples but the first"
TOO_FEW = (
    "too few samples to keep some apart: accuracy is measured on those that chose the ranges, and"
    f" looks better than it is; give {HELD_OUT_LEAST} or more"
)
NOTHING_LEFT = "the device runs none of it: no convolution is left for the device, all stays float"


def about_samples(
    data: CalibrationData, accuracy: quality.Accuracy, similarity: str
) -> tuple[str, ...]:
    """Return the reasons why the measured numbers are less reliable."""
    warnings = []
    if data.builtin is not None and data.builtin.warning:
        text = f"{data.builtin.warning}; give --calibration with a handful of real inputs"
        warnings.append(text)
    if data.assumed:
        warnings.append(data.assumed)
    if accuracy.uncompared < accuracy.samples and accuracy.cosine is None:
        warnings.append("an output is all zeros or not finite")
    if data.held_out is None and not data.samples.synthetic:
        warnings.append(TOO_FEW)
    return (*warnings, *filter(None, [similarity]), *data.samples.notes)


def unused(form: str, options: Options, *, samples: bool) -> tuple[str, ...]:
    """Return warnings about options that a form without int8 activations does not use."""
    goals = {"--min-sqnr": options.min_sqnr, "--max-extra-macs": options.max_extra_macs}
    flags = " and ".join(flag for flag, value in goals.items() if value)
    warnings = [f"--format {form} needs no samples: those given are not used"] if samples else []
    if flags:
        text = f"--format {form} has float activations: nothing is measured or bought for {flags}"
        warnings.append(text)
    return tuple(warnings)


def doubt_db(data: CalibrationData, similarity: str, findings: Iterable[Finding] = ()) -> float:
    """Return the dB by which new samples may be worse, for reasons that these do not show."""
    if any(finding.code == normalization_implausible.code for finding in findings):
        return interval.MADE_UP_DB
    if data.builtin is not None:
        doubts = {"guessed": interval.GUESSED_DB, "unknown": interval.MADE_UP_DB}
        return doubts.get(data.builtin.certainty, interval.INFERRED_DB)
    alike = interval.ALIKE_DB if similarity else 0.0
    return alike + (interval.CALIBRATED_DB if data.held_out is None else 0.0)


def sameness(samples: Samples) -> str:
    """Return a warning if all samples are the same or constant, else an empty text.

    Samples are read up to the first that varies and differs from the first, mostly the second.
    """
    if samples.builtin:
        return ""
    first, number = samples[0], len(samples)
    if all(map(_is_constant, samples)):
        zeros = not any(np.any(array) for feed in samples for array in feed.values())
        fault = "are constant: all values of each are the same"
        fault = "hold nothing but zeros" if zeros else fault
        return f"the samples {fault}, so ranges mean nothing; give real inputs"
    furthest = 0.0
    for sample in (samples[index] for index in range(1, number)):
        distances = (_distance(array, sample[name]) for name, array in first.items())
        furthest = max(furthest, max(distances, default=0.0))
        if furthest > SAME_SHARE:
            return ""
    if number == 1:
        return ""
    alike = "nearly the same" if furthest else "the same"
    return f"all {number} samples are {alike}, and show no more than one; give others"


def _is_constant(feed: Feed) -> bool:
    arrays = [array for array in feed.values() if array.size > 1]
    return bool(arrays) and all(np.all(array == array.flat[0]) for array in arrays)


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    """Return the mean squared difference of two arrays, as a share of the variance of the first."""
    if a.shape != b.shape or np.array_equal(a, b):
        return 0.0 if a.shape == b.shape else 1.0
    if a.dtype.kind not in "fiu":
        return 1.0
    difference = np.subtract(a, b, dtype=np.float64)
    variance = float(np.var(a, dtype=np.float64))
    return float(np.mean(difference**2)) / variance if variance else 1.0


def nothing_left(plan: Plan) -> tuple[str, ...]:
    """Return a warning if no convolution runs on the device: then nothing is rounded."""
    return () if plan.convolutions else (NOTHING_LEFT,)


def still_float(model: Model, options: Options) -> tuple[str, ...]:
    """Return a warning on inputs and outputs that ``io=int8`` left in float, and the reason."""
    if options.io != "int8":
        return ()
    names = []
    for tensor in (*model.graph.inputs, *model.graph.outputs):
        if not query.dtype_name(tensor).startswith("float"):
            continue
        node, verb = query.producer(tensor), "made"
        if node is None:
            consumers = (n for n in query.consumers(tensor) if n.op != "QuantizeLinear")
            node, verb = next(consumers, None), "read"
        name = tensor.name
        if node is not None:
            name += f" ({verb} by {query.qualified(node)} {model.label(node)!r})"
        names.append(name)
    if not names:
        return ()
    advice = "which work in float; run these nodes outside of the model, or leave --io int8 out"
    if not options.lowers:
        advice = f"as with any --format {options.format}; --format qoperator makes them int8"
    return (f"some inputs or outputs stay float: {', '.join(names)}, {advice}",)


def not_judged(legal: LegalModel, samples: Samples) -> tuple[str, ...]:
    """Name options, limits and samples that check cannot judge: it runs one sample, not in int8.

    Built-in samples get no notice: convert leaves some of them out.
    """
    options, goal = legal.options, legal.options.min_sqnr
    codes = []  # codes of rules about samples whose findings would stop a conversion
    for rule in all_rules():
        is_goal = rule is accuracy_too_low and goal is not None
        severity = Severity.ERROR if is_goal else rule.severity
        finding = Finding(code=rule.code, name=rule.name, severity=severity, message="")
        counted = (
            select_findings([finding], options) if rule.stage in ("calibrated", "measured") else []
        )
        if fails(counted, options) or any(map(is_blocking, counted)):
            codes.append(rule.code)
    sentences = []
    if goal is not None and accuracy_too_low.code in codes:
        codes.remove(accuracy_too_low.code)
        sentence = f"--min-sqnr {goal:g}: only convert measures how accurate the int8 model is"
        sentences.append(sentence)
    if codes:
        named = ", ".join(codes)
        sentences.append(f"{named}, which count by your options: only convert runs all samples")
    if options.pad_on_host in ("auto", "all"):
        flag = f"--pad-on-host {options.pad_on_host}"
        sentences.append(f"{flag}: only convert decides what crosses for it")
    if limit := _open_limit_of_sums(legal):
        sentences.append(f"{_SUMS}, {limit}: only convert knows the integer weights")
    if not samples.builtin and len(samples) > 1:
        sentences.append(f"{LATER} of {len(samples)}: only convert runs them")
    return tuple(sentences)


def _open_limit_of_sums(legal: LegalModel) -> str:
    """Return the limit on sums of integer weights; empty if no weights could break it."""
    target = legal.target
    operator, largest = target.operator("Conv"), max(map(abs, target.weights.range))
    for win in filter(None, map(window, legal.plan.convolutions)):
        if operator is None or win.op != "Conv" or not win.weight:
            continue
        limit = operator.limits_for(win.mode).get(_SUMS)
        most = largest * math.prod(win.weight[1:])
        if limit is not None and not all(limit.allows(total, {}) for total in (0, most)):
            return limit.text()
    return ""
