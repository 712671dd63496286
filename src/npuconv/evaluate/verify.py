"""Verification: the error of an int8 model against a float model, whole and layer by layer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Unpack

import numpy as np
import onnx

from npuconv import executor
from npuconv.amounts import count
from npuconv.config import make_options
from npuconv.data import Feed, Source
from npuconv.data.pictures import UNKNOWN_NORMALIZATION
from npuconv.errors import ModelError, UsageError
from npuconv.evaluate import matching
from npuconv.evaluate.comparison import ONLY_INDICES, Comparison, Stats
from npuconv.evaluate.labels import check_scores, count_right, notes_without_labels, read_labels
from npuconv.evaluate.matching import LayerPair
from npuconv.evaluate.pairs import check_pair, choose_samples, open_int8, open_model
from npuconv.evaluate.vendor import judge, open_tool
from npuconv.keywords import SampleKeywords
from npuconv.model.proto import Links, attributes_of
from npuconv.model.source import read_source
from npuconv.records import replace
from npuconv.schemas import verify as schema
from npuconv.schemas.report import Tool
from npuconv.timings import Progress, silent
from npuconv.version import __version__

LAYER_SAMPLES = 8  # number of samples on which layers are compared
SYNTHETIC = "the samples are made up, so these numbers prove little: give --data with real inputs"
UNNORMALIZED = (
    "the samples are not normalized as in training, so these numbers prove little: give the "
    "--preprocess that convert has used or assumed, or --data with real inputs"
)


def verify(  # noqa: PLR0913 - one keyword per flag
    float_model: str | Path | onnx.ModelProto,
    int8_model: str | Path | onnx.ModelProto,
    data: Source = None,
    *,
    labels: str | Path | None = None,
    samples: int | None = None,
    min_sqnr: float | None = None,
    vendor: str | None = None,
    vendor_python: str | Path | None = None,
    progress: Progress = silent,
    **options: Unpack[SampleKeywords],
) -> schema.VerifyReport:
    """Measure the error of an int8 model against the float model it was made from.

    Args:
        float_model: a path or a ModelProto; the original, or what ``format="float"`` gives.
        int8_model: any model with the same inputs and outputs; a path that ends in .tflite is
            a file that ``convert`` wrote, and runs on LiteRT.
        data: samples, as ``convert`` takes them for calibration; better others than those.
        labels: classes of the samples: .npy, .npz (key y or labels), .tsv or .csv.
        samples: how many are compared at most; by default 64, with labels all.
        min_sqnr: decibels; with a lower SQNR the report has not passed.
        vendor: tool that also judges the int8 model: ``NAME`` or ``NAME:CHIP`` of ``VENDORS``.
        vendor_python: interpreter of its environment.
        progress: called with a stage, how much is done, and of how much.
        **options: the keys of ``npuconv.keywords.SampleKeywords``.

    Raises:
        ModelError: a model that cannot be used, or the two do not belong together.
        UsageError: the first is an int8 model, and the second is none; or the vendor's tool
            is not installed.
        CalibrationError: samples or labels that cannot be used.
    """
    settings = make_options(options)
    if vendor_python is not None and vendor is None:
        raise UsageError("--vendor-python needs --vendor")
    path = data if isinstance(data, str | Path) else None
    classes = read_labels(labels, path) if labels is not None else None
    before, after = open_model(float_model), open_int8(int8_model)
    warnings = check_pair(before, after)
    tool = open_tool(vendor, vendor_python, after) if vendor is not None else None
    feeds, assumed = choose_samples((before, after), data, settings, samples, classes)
    feeds = replace(feeds, notes=tuple(notes_without_labels(feeds.notes, labels, path)))
    pairs, unmatched = matching.match(before.proto, after.proto)
    right = [0, 0]  # rows that each model classifies rightly
    batch = len(np.atleast_1d(next(iter(feeds[0].values())))) if classes is not None else 0
    results: list[tuple[Feed, Feed, Feed]] = []  # inputs and outputs, for the vendor's tool

    def count_sample(number: int, reference: Feed, result: Feed) -> None:
        """Count a sample that both models have classified."""
        if tool is not None:
            floats, integers = ({n: v[n] for n in after.outputs} for v in (reference, result))
            results.append((feeds[number], floats, integers))
        if classes is not None:
            outputs = [values[before.outputs[0]] for values in (reference, result)]
            for values in outputs:
                check_scores(before.outputs[0], values, batch)
            row = feeds.indices[number] * batch
            numbers = count_right(classes[row : row + batch], outputs)
            right[:] = map(sum, zip(right, numbers, strict=True))
        progress("comparing", number + 1, len(feeds))

    scales, models = matching.scales(after.proto, after.name), (before.proto, after.proto)
    try:
        progress("loading models", 0, len(feeds))
        comparison = Comparison(*models, scales, pairs, after.tflite, layer_samples=LAYER_SAMPLES)
        measured = comparison.measure(feeds, count_sample)
    except executor.RuntimeRefusedError as error:
        name = after.name
        try:
            executor.Session(before.proto).run(feeds[0])
        except executor.RuntimeRefusedError:
            name = before.name
        raise ModelError(f"{name}: onnxruntime does not run it: {error}") from None
    verdict = None
    if tool is not None:
        progress(f"{tool.vendor.name} compiles and runs it", 0, 0)
        verdict = judge(tool, after, int8_model, results, comparison)
    modules = {
        node.name: source.module
        for node in before.proto.graph.node
        if (source := read_source(node.name, node.metadata_props)) is not None
    }
    layers = tuple(
        _layer(layer, stats, modules)
        for layer, stats in zip(comparison.layers, measured.layers, strict=True)
    )
    if feeds.synthetic:
        is_unknown = feeds.description.endswith(UNKNOWN_NORMALIZATION)
        warnings += (UNNORMALIZED if is_unknown else SYNTHETIC,)
    warnings += (assumed,) if assumed else ()
    if measured.sample_numbers and measured.total.cosine is None:
        warnings += ("an output is all zeros or not finite",)
    warnings += (measured.refusal,) if measured.refusal else ()
    warnings += (*measured.left_out, *feeds.notes)
    if after.tflite is None and (faults := list(conversion_faults(after.proto))):
        refused = count(len(faults), "conversion")
        warnings += (f"compilers of devices refuse {refused}: {faults[0]}",)
    warnings += (ONLY_INDICES,) if min_sqnr is not None and measured.is_of_indices else ()
    sqnr = -math.inf if measured.total.sqnr_db is None else measured.total.sqnr_db
    labelled = None
    if classes is not None:
        number = len(feeds) * batch
        shares = [round(rows / max(number, 1), 4) for rows in right]
        labelled = schema.Labelled(
            output=before.outputs[0], samples=number, float_top1=shares[0], int8_top1=shares[1]
        )
    return schema.VerifyReport(
        tool=Tool(version=__version__),
        float_model=schema.VerifiedModel(path=before.name, sha256=before.sha256),
        int8_model=schema.VerifiedModel(path=after.name, sha256=after.sha256),
        samples=len(feeds),
        source=feeds.description,
        synthetic=feeds.synthetic,
        warnings=warnings,
        total=schema.Errors(**measured.total.errors()),
        outputs=tuple(
            schema.VerifiedOutput(
                name=name,
                parts=tuple(
                    schema.VerifiedPart(name=part, **within.errors())
                    for part, within in measured.parts.get(name, {}).items()
                ),
                **stats.agreement(),
                **stats.errors(),
            )
            for name, stats in measured.outputs.items()
        ),
        layers=layers,
        layer_samples=min(len(feeds), LAYER_SAMPLES) if layers else 0,
        unmatched=unmatched,
        labelled=labelled,
        min_sqnr_db=min_sqnr,
        vendor=verdict,
        passed=(min_sqnr is None or measured.is_of_indices or sqnr >= min_sqnr)
        and (verdict is None or verdict.verdict == "accepted"),
    )


def _layer(layer: LayerPair, stats: Stats, modules: Mapping[str, str]) -> schema.VerifiedLayer:
    ranges = [  # lows and highs to 4 digits; None where no value was finite
        (float(f"{low:.4g}"), float(f"{high:.4g}")) if low <= high else None
        for low, high in stats.ranges
    ]
    return schema.VerifiedLayer.from_attributes(
        layer,
        module=modules.get(layer.name.partition(" (")[0], ""),
        float_range=ranges[0],
        int8_range=ranges[1],
        **stats.errors(),
    )


def conversion_faults(model: onnx.ModelProto) -> Iterator[str]:
    """Yield a sentence for each explicit conversion that compilers of devices refuse, in order.

    They take a QuantizeLinear and each DequantizeLinear that reads it for one int8 tensor with one
    scale and zero point, and do not read integer operators at all; runtimes compute with all.
    """
    if any(node.op_type.startswith("QLinear") for node in model.graph.node):
        return
    links = Links(model.graph)
    for node in model.graph.node:
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        name, values = node.name or node.output[0], [links.constant(n) for n in node.input[1:3]]
        if links.constant(node.input[0]) is not None:
            axis = attributes_of(node).get("axis", 1)
            if axis != 0 and any(value is not None and value.ndim for value in values):
                yield f"{name}: scales of a constant along axis {axis}, not 0"
            continue
        if any(value is None or value.size != 1 for value in values):
            yield f"{name}: not one constant scale and zero point for the whole tensor"
            continue
        producer = links.producers.get(node.input[0])
        if node.op_type == "DequantizeLinear" and producer is not None:
            if producer.op_type != "QuantizeLinear":
                continue
            pair = [links.constant(n) for n in producer.input[1:3]]
            if not all(
                a is not None and b is not None and np.array_equal(a.ravel(), b.ravel())
                for a, b in zip(values, pair, strict=True)
            ):
                yield f"{name}: another scale or zero point than {producer.name} in front of it"
