"""Sentences of the report: warnings, and options that a check cannot judge."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from npuconv import emit
from npuconv.config import Options
from npuconv.data import Feed, Samples
from npuconv.data.builtin import BuiltinData
from npuconv.data.samples import HELD_OUT_LEAST
from npuconv.evaluate.interval import INTERVAL
from npuconv.findings import Finding, Severity
from npuconv.legalize.registry import Phase
from npuconv.legalize.selection import fails, is_blocking, wanted
from npuconv.model import query
from npuconv.model.conv import window
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor
from npuconv.partition import Plan
from npuconv.rules import Rule
from npuconv.rules.engine import all_rules
from npuconv.schemas import quality
from npuconv.target import Target

SAME_SHARE = 1e-3  # of the spread of a sample: samples nearer than these 30 dB are the same
_MEASURED = "CAL005"  # the rule that --min-sqnr makes an error of
_SUMS = "weight_abs_sum_max"
_UNLIKE = "CAL001"  # the rule on samples that are not normalized as in training
TOO_FEW = (
    "too few samples to keep some apart: accuracy is measured on those that chose the ranges, and"
    f" looks better than it is; give {HELD_OUT_LEAST} or more"
)
LATER = "all samples but the first"
NOTHING_LEFT = "the device runs none of it: no convolution is left for the device, all stays float"


def about_samples(
    samples: Samples,
    assumed: str,
    found: quality.Accuracy,
    held_out: bool,
    chosen: BuiltinData | None = None,
    same: str = "",
) -> tuple[str, ...]:
    """Return warnings about all that makes the measured numbers less reliable."""
    warnings = []
    if chosen is not None and chosen.warning:
        warnings.append(f"{chosen.warning}; give --calibration with a handful of real inputs")
    if assumed:
        warnings.append(assumed)
    if found.uncompared < found.samples and found.cosine is None:
        warnings.append("an output is all zeros or not finite")
    if not held_out and not samples.synthetic:
        warnings.append(TOO_FEW)
    return (*warnings, *filter(None, [same]), *samples.notes)


def unused(form: str, options: Options, *, samples: bool) -> tuple[str, ...]:
    """Return warnings about options that a form without int8 activations does not use."""
    goals = {"--min-sqnr": options.min_sqnr, "--max-extra-macs": options.max_extra_macs}
    given = " and ".join(flag for flag, value in goals.items() if value)
    warnings = [f"--format {form} needs no samples: those given are not used"] if samples else []
    if given:
        text = f"--format {form} has float activations: nothing is measured or bought for {given}"
        warnings.append(text)
    return tuple(warnings)


def doubt_db(
    same: str, held_out: bool, chosen: BuiltinData | None, findings: Iterable[Finding] = ()
) -> float:
    """Return by how much new samples may be worse for reasons that these do not show."""
    kinds = {
        "given": INTERVAL.inferred_db,
        "inferred": INTERVAL.inferred_db,
        "guessed": INTERVAL.guessed_db,
        "unknown": INTERVAL.made_up_db,
    }
    if any(finding.code == _UNLIKE for finding in findings):
        return INTERVAL.made_up_db
    if chosen is not None:
        return kinds[chosen.certainty]
    alike = INTERVAL.alike_db if same else 0.0
    return alike + (0.0 if held_out else INTERVAL.calibrated_db)


def sameness(samples: Samples) -> str:
    """Return a warning if samples show no more than one does, or nothing; else an empty text.

    Samples are read up to the first that varies and the first that differs, most often the second.
    """
    if samples.builtin:
        return ""
    first, count = samples[0], len(samples)
    if all(map(_is_constant, samples)):
        zeros = not any(np.any(array) for feed in samples for array in feed.values())
        what = (
            "hold nothing but zeros" if zeros else "are constant: all values of each are the same"
        )
        return f"the samples {what}, so ranges mean nothing; give real inputs"
    furthest = 0.0
    for number in range(1, count):
        other = samples[number]
        distances = (_difference(array, other[name]) for name, array in first.items())
        furthest = max(furthest, max(distances, default=0.0))
        if furthest > SAME_SHARE:
            return ""
    if count == 1:
        return ""
    what = "nearly the same" if furthest else "the same"
    return f"all {count} samples are {what}, and show no more than one; give others"


def _is_constant(feed: Feed) -> bool:
    arrays = [array for array in feed.values() if array.size > 1]
    return bool(arrays) and all(np.all(array == array.flat[0]) for array in arrays)


def _difference(one: np.ndarray, other: np.ndarray) -> float:
    """Return the distance of two arrays, as a share of their spread."""
    if one.shape != other.shape or np.array_equal(one, other):
        return 0.0 if one.shape == other.shape else 1.0
    if one.dtype.kind not in "fiu":
        return 1.0
    difference = np.subtract(one, other, dtype=np.float64)
    spread = float(np.var(one, dtype=np.float64))
    return float(np.mean(difference**2)) / spread if spread else 1.0


def nothing_left(plan: Plan) -> tuple[str, ...]:
    """Return a warning if no convolution runs on the device: then nothing is rounded."""
    return () if plan.device else (NOTHING_LEFT,)


def still_float(model: Model, options: Options) -> tuple[str, ...]:
    """Return a warning on inputs and outputs that ``io=int8`` left in float, and the reason."""
    if options.io != "int8":
        return ()
    named = [*_inputs_in_float(model), *_outputs_in_float(model)]
    if not named:
        return ()
    advice = "which work in float; run these nodes outside of the model, or leave --io int8 out"
    if Phase.LOWER not in emit.get(options.format).phases:
        advice = f"as with any --format {options.format}; --format qoperator makes them int8"
    return (f"some inputs or outputs stay float: {', '.join(named)}, {advice}",)


def _inputs_in_float(model: Model) -> Iterator[str]:
    for tensor in filter(_is_float, model.graph.inputs):
        reader = next((n for n in query.consumers(tensor) if n.op != "QuantizeLinear"), None)
        yield tensor.name if reader is None else f"{tensor.name} (read by {_named(model, reader)})"


def _outputs_in_float(model: Model) -> Iterator[str]:
    for tensor in filter(_is_float, model.graph.outputs):
        maker = query.producer(tensor)
        yield tensor.name if maker is None else f"{tensor.name} (made by {_named(model, maker)})"


def _is_float(tensor: Tensor) -> bool:
    return query.dtype_name(tensor).startswith("float")


def _named(model: Model, node: Node) -> str:
    return f"{query.qualified(node)} {model.label(node)!r}"


def not_judged(options: Options, crossing: int | None = None) -> tuple[str, ...]:
    """Name the options that check cannot judge, as it runs one sample and no int8 model."""
    goal = f"--min-sqnr {options.min_sqnr:g}" if options.min_sqnr is not None else ""
    counting = list(_counting(options))
    found = []
    if goal and any(rule.code == _MEASURED for rule in counting):
        found.append(f"{goal}: only convert measures how accurate the int8 model is")
    codes = ", ".join(rule.code for rule in counting if not goal or rule.code != _MEASURED)
    if codes:
        found.append(f"{codes}, which count by your options: only convert runs all samples")
    if options.padding in ("auto", "all"):
        found.append(f"{_crossings(options, crossing)}: only convert decides what crosses for it")
    return tuple(found)


def sums_not_judged(target: Target, convs: Iterable[Node]) -> tuple[str, ...]:
    """Name the limit on sums of integer weights, unless these convolutions keep it for sure."""
    operator, largest = target.operator("Conv"), max(map(abs, target.weights.range))
    for win in filter(None, map(window, convs)):
        if operator is None or win.op != "Conv" or not win.weight:
            continue
        limit = operator.limits_for(win.mode).get(_SUMS)
        most = largest * math.prod(win.weight[1:])
        if limit is not None and not all(limit.allows(one, {}) for one in (0, most)):
            return (f"{_SUMS}, {limit.text()}: only convert knows the integer weights",)
    return ()


def samples_not_judged(samples: Samples) -> tuple[str, ...]:
    """Name the samples that check only counts: of built-in ones convert leaves out some."""
    if samples.builtin or len(samples) < 2:
        return ()
    return (f"{LATER} of {len(samples)}: only convert runs them",)


def _crossings(options: Options, crossing: int | None) -> str:
    """Name the flag that lets the host pad tensors of the device, and its possible cost."""
    percent = options.max_extra_bytes
    if percent is None:
        return f"--pad-on-host {options.pad_on_host}"
    bound = "" if crossing is None else f", at most {round(crossing * percent / 100):,} bytes"
    return f"--max-extra-bytes {percent:g}{bound}"


def _counting(options: Options) -> Iterator[Rule]:
    """Yield the rules about samples whose findings would stop a conversion."""
    for rule in all_rules():
        if rule.at in ("calibrated", "measured") and _stops_conversion(rule, options):
            yield rule


def _stops_conversion(rule: Rule, options: Options) -> bool:
    raised = rule.code == _MEASURED and options.min_sqnr is not None
    severity = Severity.ERROR if raised else rule.severity
    finding = Finding(code=rule.code, name=rule.name, severity=severity, message="")
    found = wanted([finding], options)
    return fails(found, options) or any(map(is_blocking, found))
