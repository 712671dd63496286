"""A legal float model in its output format: options, lowering passes, limits, metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from npuconv.arithmetic.encoding import Encoding
from npuconv.arithmetic.layer import RoundedWeights
from npuconv.config import Options
from npuconv.emit import int32_sums, keys
from npuconv.emit.emission import Emission
from npuconv.emit.lowering.lower_boundaries import lower_boundaries
from npuconv.emit.lowering.quantize_activations import quantize_activations
from npuconv.emit.lowering.quantize_weights import quantize_weights
from npuconv.emit.lowering.split_accumulated import split_accumulated
from npuconv.emit.lowering.write_bias_channels import write_bias_channels
from npuconv.errors import InternalError, UsageError
from npuconv.findings import Finding
from npuconv.legalize import manager
from npuconv.legalize.legal import LegalModel
from npuconv.legalize.log import Log
from npuconv.legalize.registry import Phase
from npuconv.legalize.split.builder import WrittenConv
from npuconv.model import Model, save
from npuconv.partition.operators import takes_as
from npuconv.records import dataclass, replace
from npuconv.rules import engine
from npuconv.rules.checks.accumulator_overflow import accumulator_overflow
from npuconv.target import Target
from npuconv.version import __version__


def with_target_defaults(options: Options) -> Options:
    """Return the options with format and opset of the target where the user gave none.

    Raises:
        TargetError: not a valid target description.
        UsageError: a layout that the format does not have.
    """
    target = Target.load(options.target)
    options = options.for_target(target.format, target.opset)
    if options.layout == "nhwc" and options.format != "qoperator":
        raise UsageError(
            f"--layout nhwc: --format {options.format} has no such layout, only qoperator has",
            hint="add --format qoperator, or leave the layout at nchw",
        )
    return options


def form_findings(legal: LegalModel) -> list[Finding]:
    """Return findings on nodes that TFLite cannot hold, before any calibration.

    Convolutions that the device refuses already have findings.

    Raises:
        InternalError: a bug in a rule.
    """
    if legal.options.format != "tflite" or engine.binding(legal.findings.all_findings):
        return []
    from npuconv.emit.tflite.translate import find_obstacles

    candidates = find_obstacles(save.to_proto(legal.model))
    obstacles = tuple(o for o in candidates if o.node not in legal.blocked)
    # TFLite cannot hold these nodes as float either: --keep-float changes no finding here.
    rules = replace(legal.rule_context(obstacles=obstacles), kept_float=frozenset())
    return engine.lint(rules, stage="form")


@dataclass(frozen=True)
class EmittedModel:
    """A model in its output format.

    Attributes:
        legal: the float model, with the rewrites of emission and the findings on rounded weights.
        model: the graph of the written model.
        proto: the written model as ONNX.
        int8_names: name of the int8 tensor by its float tensor.
        notes: text for the report on a layer, by node label.
        scales: scales of the model's int8 inputs and outputs, by name.
    """

    legal: LegalModel
    model: Model
    proto: onnx.ModelProto
    int8_names: dict[str, str]
    notes: dict[str, str]
    scales: dict[str, float]


def emit_model(
    legal: LegalModel,
    encodings: Mapping[str, Encoding],
    weights: Mapping[str, RoundedWeights],
    convs: Sequence[WrittenConv] = (),
) -> EmittedModel:
    """Write the legal float model in the format of its options.

    Args:
        legal: the model.
        encodings: scale and zero point by tensor; empty if activations stay float.
        weights: integer weights and biases by node; other weights are rounded to nearest.
        convs: convolutions of layers that were split, and how the device runs them.

    Returns:
        The model with the names of its int8 tensors.

    Raises:
        InternalError: a bug in a pass, or a result that breaks any other limit of the target.
    """
    copy, options = legal.copied(), legal.options
    log = Log(measures=False)  # ``evaluate.comparison`` compares the int8 model as a whole
    emission = Emission.from_plan(copy.plan, encodings, weights, convs)
    on_host = (n for n in copy.plan.passthrough if copy.plan.placement[id(n)] == "host")
    hosted = [n.name for n in on_host if takes_as(n.op, n, copy.target)]
    phases = [Phase.QUANTIZE, *([Phase.LOWER] if options.lowers else [])]
    passes = [item for phase in phases for item in manager.order(phase)]
    results = {
        item.name: manager.apply(copy.model, item, copy.device, log, emission=emission)
        for item in (passes if options.format != "float" else ())
    }
    scales, sums = results.get(lower_boundaries.name, {}), results.get(split_accumulated.name, [])
    notes = dict(results.get(quantize_weights.name, {}))
    for label, entry in sums:
        notes.setdefault(label, f"{len(entry.parts)} parts, added in int32")
    for label, note in results.get(write_bias_channels.name, []):
        before = notes.get(label, note)  # perhaps of another part of the same layer
        notes[label] = before if note in before else f"{note}; {before}"
    copy.log.extend(log)
    broken = engine.lint(copy.rule_context(), stage="lowered")
    for finding in broken:
        # Legalization keeps every other limit; it does not know the integer weights.
        if finding.code != accumulator_overflow.code:
            text = f"{finding.node!r}: {finding.message}"
            raise InternalError(text, where=f"postcondition {finding.name}")
    metadata = _metadata(copy, scales, hosted) | int32_sums.record(entry for _, entry in sums)
    proto = save.to_proto(copy.model, metadata)
    legal = replace(legal, log=copy.log).with_findings(broken)
    int8_names = results.get(quantize_activations.name, {})
    return EmittedModel(legal, copy.model, proto, int8_names, notes, scales)


def _metadata(
    legal: LegalModel, boundary_scales: Mapping[str, float], hosted: Sequence[str]
) -> dict[str, str]:
    """Return the metadata of the file: versions, hashes, scales, operators of the device.

    ``hosted`` are names of nodes on the host that the device would run on int8 tensors, of which
    lowering may have removed some.
    """
    scales = {f"{keys.SCALE}{name}": repr(s) for name, s in boundary_scales.items()}
    how = legal.target.activations.requantize
    if how.kind != "float":  # the simulator rounds as the device does
        scales[keys.REQUANTIZE] = how.words()
    if how.kind == "gemmlowp" or legal.plan.operators:
        scales[keys.OPERATORS] = "\n".join(node.name for node in legal.plan.operators)
    names = {node.name for node in legal.model.nodes()}
    if written := [name for name in hosted if name in names]:
        scales[keys.HOST_OPERATORS] = "\n".join(written)
    return {
        "npuconv.version": __version__,
        "npuconv.format": legal.options.format,
        "npuconv.target": legal.target.name,
        "npuconv.target_sha256": legal.target.sha256,
        "npuconv.source_sha256": legal.model.sha256,
        **scales,
    }
