"""Emission of a model in its form: lowering passes, metadata, a last look."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from npuconv.arithmetic.encoding import Encoding
from npuconv.arithmetic.layer import RoundedWeights
from npuconv.diagnostics import Finding
from npuconv.emit import Format, int8_operators
from npuconv.emit.context import EmitContext
from npuconv.errors import InternalError
from npuconv.legalize import manager
from npuconv.legalize.fitting.builder import WrittenConv
from npuconv.legalize.legal import LegalModel
from npuconv.legalize.registry import Phase
from npuconv.model import save
from npuconv.rules import engine
from npuconv.version import __version__

NO_ENCODINGS: Mapping[str, Encoding] = {}
# The rule on sums of integer weights, which only quantization knows; all else was made to fit.
WEIGHT_SUMS = "QNT002"
NO_WEIGHTS: Mapping[str, RoundedWeights] = {}


def emit(
    legal: LegalModel,
    form: Format,
    encodings: Mapping[str, Encoding] = NO_ENCODINGS,
    weights: Mapping[str, RoundedWeights] = NO_WEIGHTS,
    convs: Sequence[WrittenConv] = (),
) -> tuple[onnx.ModelProto, EmitContext]:
    """Write the legal float model in a form.

    Args:
        legal: the model; its graph is changed.
        form: float, weights, qdq or qoperator.
        encodings: scale and zero point by tensor; none where activations stay float.
        weights: integer weights and biases by node; the others are rounded to nearest.
        convs: convolutions of layers that were split, and how the device runs them.

    Returns:
        The model, and the context of the passes, with the names of its int8 tensors and with
        the limits that its weights break.

    Raises:
        InternalError: a bug in a pass, or a result that breaks any other limit of the target.
    """
    # int8 is compared as a whole: it is not meant to be equal.
    ctx = EmitContext(
        legal.target, legal.options, verify=False, kept=legal.ctx.kept,
        terms={conv.node: conv.terms for conv in convs if conv.terms},
        bias_channels={c.node: c.bias_channels for c in convs if c.bias_channels is not None},
    )  # fmt: skip
    ctx.use(legal.plan, encodings, weights)
    for phase in form.phases:
        manager.run_phase(legal.model, Phase(phase), ctx)
    legal.ctx.rewrites += ctx.rewrites
    legal.ctx.refusals |= ctx.refusals
    ctx.broken = _check_limits(legal)
    return save.to_proto(legal.model, _metadata(legal, form)), ctx


def _check_limits(legal: LegalModel) -> tuple[Finding, ...]:
    """Return the limits that rounded weights break; fail if the model breaks any other."""
    broken = engine.lint(legal.rules(), at="lowered")
    for finding in broken:
        if finding.code != WEIGHT_SUMS:
            text = f"{finding.node!r}: {finding.message}"
            raise InternalError(text, where=f"postcondition {finding.name}")
    return tuple(broken)


def _metadata(legal: LegalModel, form: Format) -> dict[str, str]:
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
    }
