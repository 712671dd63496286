"""Findings of calibration and of the measured int8 model, with what the rules need for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import onnx

from npuconv.arithmetic.statistics import Statistics
from npuconv.calibration.collect import collect
from npuconv.calibration.inputs import first_convolution
from npuconv.calibration.runner import Runner
from npuconv.diagnostics import Finding
from npuconv.emit.tflite.translate import find_obstacles
from npuconv.errors import CalibrationError
from npuconv.legalize.legal import LegalModel
from npuconv.model import query, save
from npuconv.model.core import Model
from npuconv.model.types import Node
from npuconv.quantize import kept
from npuconv.quantize.calibrate import Calibration
from npuconv.quantize.state import QuantState
from npuconv.rules import engine
from npuconv.rules.context import CalibrationEvidence, MeasuredError, OutputSqnr
from npuconv.rules.normalization import (
    CANDIDATES,
    ActivationProfile,
    NormalizationTrials,
    activation_profile,
    candidates,
    relative_bias,
)
from npuconv.samples import Feed, Samples
from npuconv.samples.feeds import spread
from npuconv.samples.normalizations import Normalization, guess, image_axis
from npuconv.schemas.quality import Accuracy


def of_form(legal: LegalModel) -> list[Finding]:
    """Return findings of the rules that look at the form of the output, before any calibration.

    Convolutions that the device refuses have findings of their own.

    Raises:
        InternalError: a bug in a rule.
    """
    if legal.options.format != "tflite" or engine.binding(legal.findings.every):
        return []
    every = find_obstacles(save.to_proto(legal.model))
    obstacles = tuple(o for o in every if o.node not in legal.blocked)
    # A form holds no node better because it stays float.
    rules = replace(legal.rules(obstacles=obstacles), kept_float=frozenset())
    return engine.lint(rules, at="form")


def of_calibration(
    legal: LegalModel,
    proto: onnx.ModelProto,
    samples: Samples,
    calibration: Calibration,
    state: QuantState,
    is_normalized: bool,
) -> list[Finding]:
    """Return findings of the rules that look at calibration.

    ``is_normalized`` tells whether the user has normalized the samples, or said how.

    Raises:
        InternalError: a bug in a rule.
    """
    statistics = calibration.statistics
    first, trials = first_convolution(legal.model), None
    if first is not None and is_normalized:
        output = statistics.get(first.outputs[0].name)
        trials = run_trials(legal.model, proto, samples, first, output)
    from_source = (g for g in legal.plan.groups if state.methods.get(g.name) in kept.METHODS)
    seen = CalibrationEvidence(
        plan=legal.plan,
        statistics=statistics,
        encodings=state.encodings,
        kept=frozenset(end for group in from_source for end in group.outputs),
        samples=len(samples),
        is_normalized=is_normalized,
        expected=legal.expected,
        rounded=state.weights,
        first=first,
        trials=trials,
    )
    return engine.lint(legal.rules(evidence=seen), at="calibrated")


def of_result(legal: LegalModel, accuracy: Accuracy, broken: tuple[str, ...] = ()) -> list[Finding]:
    """Return findings of the rules that look at the measured int8 model.

    Raises:
        InternalError: a bug in a rule.
    """
    if accuracy.outputs and all(output.holds_indices for output in accuracy.outputs):
        return []
    exact = accuracy.sqnr_db is None and accuracy.cosine is not None
    shown = tuple(_shown(accuracy))
    measured = MeasuredError(
        accuracy.sqnr_db, exact, accuracy.samples - accuracy.uncompared, shown, broken
    )
    return engine.lint(legal.rules(measured=measured), at="measured")


def _shown(accuracy: Accuracy) -> Iterator[OutputSqnr]:
    for output in accuracy.outputs:
        if output.sqnr_db is not None:
            yield OutputSqnr(output.name, output.sqnr_db)
        for part in output.parts:
            if part.sqnr_db is not None:
                yield OutputSqnr(part.name, part.sqnr_db, output.name)


TRIAL_SAMPLES = 4


def run_trials(
    model: Model,
    proto: onnx.ModelProto,
    samples: Samples,
    first: Node,
    observed: Statistics | None = None,
) -> NormalizationTrials | None:
    """Run the model on a few samples, as they are and normalized differently.

    Returns:
        None where the input is no image, where its range says nothing about how it was
        normalized, or where the first layer is followed by a normalization of its own.
    """
    feeds = [samples[k] for k in spread(len(samples), TRIAL_SAMPLES)]
    name = _image(feeds)
    readers = [] if name is None else first.outputs[0].outputs
    if name is None or any(reader.op == "InstanceNormalization" for reader in readers):
        return None
    axis = image_axis(feeds[0][name].shape)
    given = guess(np.concatenate([feed[name].ravel() for feed in feeds]))
    if axis is None or given is None:
        return None
    others, bias = CANDIDATES[given], query.constant_input(first, 2)
    if observed is not None:
        others = candidates(given, relative_bias(observed, bias))
    pixels = [given.undo(feed[name], axis) for feed in feeds]
    found: dict[Normalization, ActivationProfile] = {}
    tensors = {conv.outputs[0].name: 1 for conv in model.nodes("Conv")}
    runner = Runner(proto, tensors, len(feeds))
    for item in (given, *others) if others else ():
        fed = [{**f, name: item.apply(p, axis)} for f, p in zip(feeds, pixels, strict=True)]
        # Numbers of another size need not pass through the model.
        with contextlib.suppress(CalibrationError):
            stats = collect(proto, tensors, fed, runner=runner)
            # A detector may find nothing.
            filled = [layer for layer in stats.values() if layer.values.size]
            found[item] = activation_profile(filled, stats[first.outputs[0].name], bias)
    return NormalizationTrials(given, found, _recreates(model, feeds[0][name].shape, axis))


def _image(feeds: Sequence[Feed]) -> str | None:
    """Return the input that is an image, if one alone is."""
    names = [
        name
        for name, array in feeds[0].items()
        if array.dtype.kind == "f" and image_axis(array.shape) is not None
    ]
    return names[0] if len(names) == 1 else None


def _recreates(model: Model, shape: tuple[int, ...], axis: int) -> bool:
    """Return whether an output is an image of as many colours, and as large or larger."""
    dims = [query.shape(tensor) for tensor in model.graph.outputs]
    return any(
        d is not None
        and len(d) == len(shape)
        and d[axis] == shape[axis]
        and all(not isinstance(n, int) or n >= m for n, m in zip(d[1:], shape[1:], strict=True))
        for d in dims
    )
