"""Report of a conversion: quantization, accuracy, warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from npuconv.data import preparation
from npuconv.emit import keys
from npuconv.emit.write_model import EmittedModel
from npuconv.evaluate import matching
from npuconv.evaluate.comparison import ONLY_INDICES, MeasuredConversion, summarize
from npuconv.legalize.legal import LegalModel
from npuconv.legalize.selection import waived
from npuconv.model import save
from npuconv.quantize.quantization import Quantization
from npuconv.records import dataclass
from npuconv.report.builder import notices
from npuconv.report.builder.quantization_rows import (
    budget_report,
    layer_rows,
    padding_report,
    partial_sums,
    source_scales,
    tensor_rows,
)
from npuconv.report.builder.report import RunResults
from npuconv.rules import engine
from npuconv.schemas import quality

if TYPE_CHECKING:
    from npuconv.emit.tflite.translate import TfliteFile


@dataclass(frozen=True)
class WrittenModel:
    """A model in its output format, with values for the report."""

    legal: LegalModel  # float graph of the model, with all findings
    proto: onnx.ModelProto
    results: RunResults
    tflite: TfliteFile | None = None  # the file, if the format is tflite


def describe_integers(
    quantization: Quantization, emitted: EmittedModel, comparison: MeasuredConversion
) -> WrittenModel:
    """Describe a model with integer activations; its metadata get a list of its layers.

    Raises:
        InternalError: a bug in a rule.
    """
    data, padded, budget = quantization.data, quantization.padded, quantization.budget
    graph, state, options = padded.graph, padded.state, padded.graph.options
    measured, similarity = comparison.measured, notices.sameness(data.samples)
    doubt = notices.doubt_db(data, similarity, emitted.legal.findings.selected)
    samples, is_held_out = data.measured_on(), data.held_out is not None
    accuracy = summarize(measured, is_held_out, samples.indices, doubt)
    rules = emitted.legal.rule_context(accuracy=accuracy, broken=measured.broken)
    findings = [] if measured.is_of_indices else engine.lint(rules, stage="measured")
    legal = emitted.legal.with_findings(findings)
    save.add_metadata(
        emitted.proto,
        {keys.LAYERS: matching.record(comparison.pairs), preparation.KEY: data.preparation},
    )
    rows = quality.QuantizationInfo(
        format=options.format,
        method=options.method,
        samples=len(data.used),
        source=data.samples.description,
        synthetic=data.samples.synthetic,
        tensors=tensor_rows(graph.plan, state, quantization.calibration.statistics),
        layers=layer_rows(quantization, comparison),
        budget=None if budget is None else budget_report(graph, budget),
        host_padding=padding_report(quantization.unpadded, padded),
        partial_sums=partial_sums(graph, padded.sensitivity()),
        source_scales=source_scales(graph, state),
    )
    warnings = notices.nothing_left(legal.plan) or notices.about_samples(data, accuracy, similarity)
    if options.min_sqnr is not None and measured.is_of_indices:
        warnings = (*warnings, ONLY_INDICES)
    warnings = (
        *warnings,
        *filter(None, [measured.refusal]),
        *notices.still_float(emitted.model, options),
        *waived(legal.findings.all_findings, legal.findings.selected),
    )
    tflite = None
    if options.format == "tflite":
        from npuconv.emit.tflite import translate  # other formats need none of its modules

        tflite = translate.write(emitted.proto)
    results = RunResults(data.row, rows, accuracy, warnings=warnings)
    return WrittenModel(legal, emitted.proto, results, tflite)


def describe_float(emitted: EmittedModel, refusal: str, *, has_samples: bool) -> WrittenModel:
    """Describe a model with float activations; ``refusal`` is a warning about its sessions."""
    legal, options = emitted.legal, emitted.legal.options
    rows = quality.QuantizationInfo(
        format=options.format, method="none", samples=0, source="none", synthetic=False
    )
    warnings = (
        *notices.nothing_left(legal.plan),
        *filter(None, [refusal]),
        *notices.unused(options.format, options, samples=has_samples),
        *notices.still_float(emitted.model, options),
        *waived(legal.findings.all_findings, legal.findings.selected),
    )
    quantization = None if options.format == "float" else rows
    results = RunResults(quantization=quantization, warnings=warnings)
    return WrittenModel(legal, emitted.proto, results)
