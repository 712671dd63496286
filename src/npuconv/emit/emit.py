"""Emission of a model in its form: lowering passes, metadata, a last look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx

from npuconv.arithmetic.encoding import Encoding
from npuconv.arithmetic.layer import RoundedWeights
from npuconv.emit import Format, int8_operators, int32_sums
from npuconv.emit.emission import Emission, Splits
from npuconv.emit.tflite.translate import find_obstacles
from npuconv.errors import InternalError
from npuconv.findings import Finding
from npuconv.legalize import manager
from npuconv.legalize.legal import LegalModel
from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase
from npuconv.legalize.split.builder import WrittenConv
from npuconv.model import save
from npuconv.rules import engine
from npuconv.version import __version__


def form_findings(legal: LegalModel) -> list[Finding]:
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


NO_ENCODINGS: Mapping[str, Encoding] = {}
# The rule on sums of integer weights, which only quantization knows; all else was made to fit.
WEIGHT_SUMS = "QNT002"
NO_WEIGHTS: Mapping[str, RoundedWeights] = {}


@dataclass(frozen=True)
class EmittedModel:
    """A model in its form.

    Attributes:
        proto: the model.
        stored: name of the int8 tensor by its float tensor.
        notes: text for the report on a layer, by node label.
        broken: limits of the target that rounded weights break.
    """

    proto: onnx.ModelProto
    stored: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    broken: tuple[Finding, ...] = ()


def emit(
    legal: LegalModel,
    form: Format,
    encodings: Mapping[str, Encoding] = NO_ENCODINGS,
    weights: Mapping[str, RoundedWeights] = NO_WEIGHTS,
    convs: Sequence[WrittenConv] = (),
) -> EmittedModel:
    """Write the legal float model in a form.

    Args:
        legal: the model; its graph is changed.
        form: float, weights, qdq or qoperator.
        encodings: scale and zero point by tensor; none where activations stay float.
        weights: integer weights and biases by node; the others are rounded to nearest.
        convs: convolutions of layers that were split, and how the device runs them.

    Returns:
        The model with the names of its int8 tensors, and the limits that its weights break.

    Raises:
        InternalError: a bug in a pass, or a result that breaks any other limit of the target.
    """
    log = Log(measures=False)  # int8 is compared as a whole: it is not meant to be equal
    emission = Emission.of(legal.plan, encodings, weights, Splits.of(convs))
    for phase in form.phases:
        _, emission = manager.run_phase(legal.model, Phase(phase), legal.device, log, emission)
    legal.log.extend(log)
    broken = _check_limits(legal)
    proto = save.to_proto(legal.model, _metadata(legal, form, emission))
    return EmittedModel(proto, emission.stored, emission.notes, broken)


def _check_limits(legal: LegalModel) -> tuple[Finding, ...]:
    """Return the limits that rounded weights break; fail if the model breaks any other."""
    broken = engine.lint(legal.rules(), at="lowered")
    for finding in broken:
        if finding.code != WEIGHT_SUMS:
            text = f"{finding.node!r}: {finding.message}"
            raise InternalError(text, where=f"postcondition {finding.name}")
    return tuple(broken)


def _metadata(legal: LegalModel, form: Format, emission: Emission) -> dict[str, str]:
    """Return entries of the file that say where it comes from."""
    # The graph does not contain the scales of int8 inputs and outputs.
    scales = {f"npuconv.scale.{name}": repr(s) for name, s in legal.model.scales.items()}
    how = legal.target.activations.requantize
    if how.kind != "float":  # the simulator rounds as the device does
        scales["npuconv.requantize"] = how.words()
    if how.kind == "gemmlowp" or legal.plan.operators:
        scales[int8_operators.KEY] = "\n".join(node.name for node in legal.plan.operators)
    return {
        "npuconv.version": __version__,
        "npuconv.format": form.name,
        "npuconv.target": legal.target.name,
        "npuconv.target_sha256": legal.target.sha256,
        "npuconv.source_sha256": legal.model.sha256,
        **scales,
        **int32_sums.record(emission.sums),
    }
