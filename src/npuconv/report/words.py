"""Numbers of a report as text, the same in every format."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from npuconv.amounts import count as count
from npuconv.amounts import in_units
from npuconv.amounts import size as size
from npuconv.amounts import total as total
from npuconv.schemas.quality import (
    Accuracy,
    Agreement,
    Budget,
    HostPadding,
    KeptScales,
    PartAccuracy,
    PartialSums,
    QuantizationInfo,
)
from npuconv.schemas.report import Device, FindingInfo, MacShare, NodeSource, Report

if TYPE_CHECKING:
    from npuconv.schemas.verify import Errors

_ABSOLUTE = re.compile(r"[\\/]|\w:[\\/]")
_VERDICTS = {"refused": "REFUSED", "convertible": "OK", "converted": "CONVERTED"}


def verdict_label(report: Report) -> str:
    """Return the verdict in one or two words; ``HOST ONLY`` if no node runs on the device."""
    verdict = report.summary.verdict
    if verdict == "convertible" and any(f.name == "nothing-on-device" for f in report.findings):
        return "HOST ONLY"
    return _VERDICTS[verdict]


def unique(texts: Iterable[str]) -> tuple[str, ...]:
    """Return the texts that are not empty, each once, in order."""
    return tuple(dict.fromkeys(text for text in texts if text))


def document(source: str) -> str:
    """Return the document that a source cites: ``notes/X`` of ``npu:45 in_c (notes/X)``."""
    head, bracket, quoted = source.rpartition("(")
    return quoted.rstrip(")") if bracket and head else source


def place(source: NodeSource | None) -> str:
    """Return module, file and line of a node: ``m.stem.conv1, models/net.py:42``.

    Of an absolute path the end is shown. Empty if the name of the node has the module.
    """
    if source is None or not (source.class_name or source.frame):
        return ""
    module, frame = source.module or source.class_name, source.frame
    if frame is None:
        return module
    path = frame.path or frame.file
    if not frame.path and _ABSOLUTE.match(path):
        path = "/".join(re.split(r"[\\/]", path)[-2:])
    return f"{module}, {path}:{frame.line}" if module else f"{path}:{frame.line}"


def node_text(finding: FindingInfo) -> str:
    """Return the node of a finding, and its training code: ``conv (m.conv1, net.py:42)``."""
    code = place(finding.node_source)
    return (finding.node or "the model") + (f" ({code})" if code else "")


def quantity(number: int | None) -> str:
    """Return a number of MACs with its unit: ``1.2 G``."""
    if number is None:
        return "unknown (dynamic shape)"
    return in_units(number, 1000, ("", " k", " M", " G", " T"))


def shape(dims: Sequence[int | str | None]) -> str:
    """Return a shape: ``1 x 3 x 224 x ?``."""
    return " x ".join("?" if dim is None else str(dim) for dim in dims) or "one number"


def change(before: str, after: str) -> str:
    """Return both texts with an arrow, or one if they are equal."""
    return before if before == after else f"{before} -> {after}"


def share(part: int | None, whole: int | None) -> str:
    """Return a share in per cent; it is not rounded to 0 or 100 unless it is."""
    if part is None or not whole:
        return "-"
    percent = 100 * part / whole
    if 99.9 < percent < 100:
        return "> 99.9 %"
    if 0 < percent < 0.1:
        return "< 0.1 %"
    return f"{percent:.1f} %"


def percent(value: float | None) -> str:
    """Return a fraction of 0..1 in per cent."""
    return "-" if value is None else f"{100 * value:.1f} %"


def part_of(value: float | None, cases: int) -> str:
    """Return a fraction of a number of cases: below a hundred ``7 of 9``, else in per cent."""
    if value is None or not 0 < cases < 100:
        return percent(value)
    return f"{round(value * cases)} of {cases}"


def total_macs(report: Report) -> int | None:
    """Return all MACs of the model; ``None`` if the MACs of one placement are unknown."""
    return total(placed.macs for placed in report.summary.placement.values())


def device_share(report: Report) -> str:
    """Return the share of the MACs that runs on the device."""
    device, whole = report.summary.placement.get("device"), total_macs(report)
    if device is None or not whole:
        return "unknown" if whole is None else "-"
    return share(device.macs, whole)


def device_change(device: Device) -> str:
    """Return the device's share of the MACs: ``12.0 % before rewriting, 100.0 % after``."""

    def text(macs: MacShare) -> str:
        if macs.device == 0 or macs.total == 0:
            return "0.0 %" if macs.total != 0 else "none"
        return share(macs.device, macs.total) if macs.device and macs.total else "unknown"

    return f"{text(device.macs_before)} before rewriting, {text(device.macs_after)} after"


def traffic(device: Device) -> str:
    """Return ``2 subgraphs on the device; per inference 3.0 KiB to it and 12.5 KiB back``."""
    to_device, to_host = device.to_device.bytes, device.to_host.bytes
    moved = f"per inference {size(to_device)} to it and {size(to_host)} back"
    if to_device is None and to_host is None:
        moved = "bytes per inference unknown (dynamic shape)"
    return f"{count(len(device.subgraphs), 'subgraph')} on the device; {moved}"


def kept_float(report: Report) -> str:
    """Return the cost of `keep_float`; empty if it is not given."""
    device = report.device
    if device is None or device.kept_float is None:
        return ""
    without = device.kept_float
    patterns = "; ".join(
        f"{pattern.pattern!r} {count(pattern.nodes, 'node')}, {quantity(pattern.macs)} MACs"
        for pattern in without.patterns
    )
    moved = size(total((device.to_device.bytes, device.to_host.bytes)))
    return (
        f"kept float: {patterns}; {report.summary.transitions} crossings instead of "
        f"{without.transitions_without}, {change(size(without.bytes_without), moved)} per inference"
    )


def sqnr(decibel: float | None, cosine: float | None) -> str:
    """Return a signal to quantization noise ratio; ``None`` with a cosine means no noise."""
    if decibel is None:
        return "not measured" if cosine is None else "exact"
    return f"{decibel:.1f} dB"


def ratio(value: float | None) -> str:
    """Return a cosine with enough digits to distinguish 0.9999 from 1."""
    return "-" if value is None else f"{value:.5f}"


def span(bounds: tuple[float, float] | None) -> str:
    """Return a range of values: ``-1.5 to 3``."""
    return "-" if bounds is None else f"{bounds[0]:.4g} to {bounds[1]:.4g}"


def interval(bounds: tuple[float, float]) -> str:
    """Return lowest and highest SQNR in whole dB, which is as exact as the estimate."""
    return f"{math.floor(bounds[0])} to {math.ceil(bounds[1])} dB"


def output_rows(accuracy: Accuracy) -> list[tuple[PartAccuracy, bool, str, str, str]]:
    """Return each output and part of one, whether it is a part, SQNR, cosine and top-1."""
    rows: list[tuple[PartAccuracy, bool, str, str, str]] = []
    for output in accuracy.outputs:
        top1 = part_of(output.top1_agreement, output.positions)
        noise = equal(output) if output.holds_indices else _noise(output, output.uncompared > 0)
        rows.append((output, False, noise, ratio(output.cosine), top1))
        rows += [(part, True, _noise(part), ratio(part.cosine), "-") for part in output.parts]
    return rows


def _noise(tensor: PartAccuracy, uncompared: bool = False) -> str:
    if tensor.sqnr_db is None and tensor.cosine is None:
        return "not compared" if uncompared else "zeros or not finite"
    return sqnr(tensor.sqnr_db, tensor.cosine)


def equal(output: Agreement) -> str:
    """Return how many indices of an output are the same in both models."""
    if output.agreement is None:
        return "not compared"
    return f"{part_of(output.agreement, output.positions)} equal"


def overall(accuracy: Accuracy) -> str:
    """Return the SQNR of all outputs; without any error, that before saturation or ArgMax."""
    if accuracy.sqnr_db is None and accuracy.unsaturated_db is not None:
        saturates = accuracy.uncompared < accuracy.samples
        place = "saturation" if saturates else "ArgMax or thresholds"
        return f"{sqnr(accuracy.unsaturated_db, None)} before {place}"
    return sqnr(accuracy.sqnr_db, accuracy.cosine)


def scores(accuracy: Accuracy, *, brief: bool = False) -> str:
    """Return the end to end accuracy in one line; ``brief`` without the cosine."""
    parts = [f"SQNR {overall(accuracy)}"]
    if accuracy.interval_db is not None:
        parts[0] += f" ({interval(accuracy.interval_db)} expected on new samples)"
    if accuracy.cosine is not None and not brief:
        parts.append(f"cosine {ratio(accuracy.cosine)}")
    parts += [f"{out.name} {equal(out)}" for out in accuracy.outputs if out.holds_indices]
    if accuracy.top1_agreement is not None:
        positions = sum(output.positions for output in accuracy.outputs)
        parts.append(f"top-1 agreement {part_of(accuracy.top1_agreement, positions)}")
    return ", ".join(parts)


def measured_on(accuracy: Accuracy) -> str:
    """Return the samples that accuracy was measured on, and their median and worst SQNR."""
    kind = "kept apart from calibration" if accuracy.held_out else "that also calibrated the model"
    parts = [f"{count(accuracy.samples, 'sample')} {kind}"]
    if accuracy.median_db is not None and accuracy.samples > 1:
        parts.append(f"median {sqnr(accuracy.median_db, None)}")
    worst = accuracy.worst_sample
    if worst is not None and accuracy.samples > 1:
        parts.append(f"worst {sqnr(worst.sqnr_db, None)} (sample {worst.number})")
    if accuracy.worst_output is not None:
        parts.append(f"worst output {accuracy.worst_output}")
    return ", ".join(parts)


def calibrated_on(quantization: QuantizationInfo) -> str:
    """Return the samples that the ranges come from."""
    if not quantization.samples:
        return "no samples needed"
    source = quantization.source
    kind = "made-up sample" if source.startswith("synthetic") else "sample"
    return f"{count(quantization.samples, kind)} ({source.removeprefix('synthetic, ')})"


def extra_macs(budget: Budget) -> str:
    """Return the extra MACs that were spent on accuracy, and the gain; or why none were."""
    if budget.repeated:
        gain = f"{sqnr(budget.before_db, None)} -> {sqnr(budget.simulated_db, None)} simulated"
        place = ", before the final Softmax or Sigmoid" if budget.unsaturated else ""
        cost = f"{budget.extra_percent:.1f} % more MACs"
        return f"{count(len(budget.repeated), 'layer')} repeated for {cost}: {gain}{place}"
    goal, before = budget.min_sqnr_db, budget.before_db
    reason = f"no repetition for {budget.max_extra_percent:g} % more MACs improves it"
    if goal is not None and before is not None and before >= goal:
        reason = f"{before:.1f} dB reach the goal of {goal:g} dB"
    elif budget.biasless:
        layers = count(budget.biasless, "layer")
        reason = (
            f"the device adds no bias to {layers}, and copies of a layer differ by their biases"
        )
    return f"no extra MACs: {reason}"


def kept_scales(scales: KeptScales) -> str:
    """Return how many scales and weights are imported from the quantized model."""
    tensors = f"{scales.tensors} of {count(scales.all_tensors, 'tensor')}"
    layers = f"{scales.layers} of {count(scales.all_layers, 'layer')}"
    return f"scales kept of {tensors}, integer weights kept of {layers}"


def error_texts(errors: Errors) -> tuple[str, str, str]:
    """Return SQNR, cosine and largest error."""
    largest = "-" if errors.max_abs_error is None else f"{errors.max_abs_error:.3g}"
    return sqnr(errors.sqnr_db, errors.cosine), ratio(errors.cosine), largest


def host_padding(padding: HostPadding) -> str:
    """Return the number of tensors that the host pads, their traffic and the gain."""
    if not padding.tensors:
        return "no tensor padded on the host: no gain"
    text = f"{count(len(padding.tensors), 'tensor')} padded on the host"
    if padding.extra_bytes is not None:
        more = "" if padding.extra_percent is None else f" ({padding.extra_percent:.0f} %)"
        text += f" for {quantity(padding.extra_bytes)} more bytes that cross{more}"
    return text if padding.gain_db is None else f"{text}: about {padding.gain_db:+.1f} dB"


def partial_sums(sums: PartialSums) -> str:
    """Return the number of partial sums, their cost, and the layer that costs most."""
    number = sum(layer.tensors for layer in sums.layers)
    text = f"{count(number, 'partial sum')} of {count(len(sums.layers), 'layer')} rounded to int8"
    costs = [(layer.cost_db, layer.node) for layer in sums.layers if layer.cost_db is not None]
    if sums.cost_db is None or not costs:
        return text
    cost, node = max(costs)
    worst = f", {cost:.1f} of them by {node}" if len(sums.layers) > 1 else f", by {node}"
    return f"{text}: about {sums.cost_db:.1f} dB{worst}"


def quantization(quant: QuantizationInfo) -> list[str]:
    """Return format, method, samples, and other steps of the quantization."""
    parts = [f"format {quant.format}", f"method {quant.method}", calibrated_on(quant)]
    parts += [extra_macs(quant.budget)] if quant.budget is not None else []
    parts += [host_padding(quant.host_padding)] if quant.host_padding is not None else []
    parts += [partial_sums(quant.partial_sums)] if quant.partial_sums is not None else []
    return parts + ([kept_scales(quant.source_scales)] if quant.source_scales is not None else [])
