"""Numbers of a report as text, the same in every format."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from npuconv.amounts import count as count
from npuconv.amounts import size as size
from npuconv.schemas.quality import (
    Accuracy,
    Agreement,
    Budget,
    HostPadding,
    OutputAccuracy,
    PartAccuracy,
    PartialSums,
    Quantization,
    SourceScales,
)
from npuconv.schemas.report import Device, MacShare, Report, VelaEstimate

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


def total(numbers: Iterable[int | None]) -> int | None:
    """Return the sum; ``None`` if any number is unknown."""
    listed = list(numbers)
    return None if None in listed else sum(number or 0 for number in listed)


def document(source: str) -> str:
    """Return the document that a source cites: ``notes/X`` of ``npu:45 in_c (notes/X)``."""
    head, bracket, quoted = source.rpartition("(")
    return quoted.rstrip(")") if bracket and head else source


def quantity(number: int | None) -> str:
    """Return a number of MACs with its unit: ``1.2 G``."""
    if number is None:
        return "unknown (dynamic shape)"
    value, units = float(number), ["", " k", " M", " G", " T"]
    while value >= 999.95 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.1f}{units[0]}" if units[0] else str(number)


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


def part_of(value: float | None, number: int) -> str:
    """Return a fraction of a number of cases: of fewer than a hundred, how many they are."""
    if value is None or not 0 < number < 100:
        return percent(value)
    return f"{round(value * number)} of {number}"


def total_macs(report: Report) -> int | None:
    """Return all MACs of the model; ``None`` if those of one placement are unknown."""
    return total(part.macs for part in report.summary.placement.values())


def device_share(report: Report) -> str:
    """Return the share of the MACs that runs on the device."""
    device = report.summary.placement.get("device")
    whole = total_macs(report)
    if device is None or not whole:
        return "unknown" if whole is None else "-"
    return share(device.macs, whole)


def device_change(device: Device) -> str:
    """Return the device's share of the MACs: ``12.0 % before rewriting, 100.0 % after``."""
    before, after = _mac_share(device.macs_before), _mac_share(device.macs_after)
    return f"{before} before rewriting, {after} after"


def _mac_share(macs: MacShare) -> str:
    if macs.device == 0 or macs.total == 0:
        return "0.0 %" if macs.total != 0 else "none"
    return share(macs.device, macs.total) if macs.device and macs.total else "unknown"


def traffic(device: Device) -> str:
    """Return ``2 subgraphs on the device; per inference 3.0 KiB to it and 12.5 KiB back``."""
    there, back = device.to_device.bytes, device.to_host.bytes
    if there is None and back is None:
        moved = "bytes per inference unknown (dynamic shape)"
    else:
        moved = f"per inference {size(there)} to it and {size(back)} back"
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
    """Return a cosine with enough digits to tell 0.9999 from 1."""
    return "-" if value is None else f"{value:.5f}"


def span(ends: tuple[float, float] | None) -> str:
    """Return a range of values: ``-1.5 to 3``."""
    return "-" if ends is None else f"{ends[0]:.4g} to {ends[1]:.4g}"


def interval(ends: tuple[float, float]) -> str:
    """Return lowest and highest SQNR in whole dB, which is as exact as the estimate."""
    return f"{math.floor(ends[0])} to {math.ceil(ends[1])} dB"


def output_rows(accuracy: Accuracy) -> list[tuple[str, bool, str, str, str]]:
    """Return name, whether a part, SQNR, cosine and top-1 of all outputs and their parts."""
    rows = []
    for one in accuracy.outputs:
        top1 = part_of(one.top1_agreement, one.positions)
        rows.append((one.name, False, _measured(one), ratio(one.cosine), top1))
        rows += [(part.name, True, _measured(part), ratio(part.cosine), "-") for part in one.parts]
    return rows


def _measured(one: OutputAccuracy | PartAccuracy) -> str:
    if isinstance(one, Agreement) and one.holds_indices:
        return equal(one)
    if one.sqnr_db is None and one.cosine is None and isinstance(one, Agreement) and one.uncompared:
        return "not compared"
    if one.sqnr_db is None and one.cosine is None:
        return "zeros or not finite"
    return sqnr(one.sqnr_db, one.cosine)


def equal(output: Agreement) -> str:
    """Return how many indices of an output are the same in both models."""
    if output.agreement is None:
        return "not compared"
    return f"{part_of(output.agreement, output.positions)} equal"


def overall(accuracy: Accuracy) -> str:
    """Return the SQNR of all outputs; where there is no such noise, that before they are chosen."""
    if accuracy.sqnr_db is None and accuracy.unsaturated_db is not None:
        where = "saturation" if accuracy.uncompared < accuracy.samples else "ArgMax or thresholds"
        return f"{sqnr(accuracy.unsaturated_db, None)} before {where}"
    return sqnr(accuracy.sqnr_db, accuracy.cosine)


def agreements(accuracy: Accuracy) -> list[str]:
    """Return top-1 agreement, and the agreement of outputs that hold indices."""
    found = [f"{one.name} {equal(one)}" for one in accuracy.outputs if one.holds_indices]
    if accuracy.top1_agreement is not None:
        positions = sum(output.positions for output in accuracy.outputs)
        found.append(f"top-1 agreement {part_of(accuracy.top1_agreement, positions)}")
    return found


def scores(accuracy: Accuracy, *, brief: bool = False) -> str:
    """Return the end to end accuracy in one line; ``brief`` without the cosine."""
    parts = [f"SQNR {overall(accuracy)}"]
    if accuracy.interval_db is not None:
        parts[0] += f" ({interval(accuracy.interval_db)} expected on new samples)"
    if accuracy.cosine is not None and not brief:
        parts.append(f"cosine {ratio(accuracy.cosine)}")
    return ", ".join([*parts, *agreements(accuracy)])


def measured_on(accuracy: Accuracy) -> str:
    """Return the samples that accuracy was measured on, and their median and worst SQNR."""
    kind = "kept apart from calibration" if accuracy.held_out else "that also calibrated the model"
    parts = [f"{count(accuracy.samples, 'sample')} {kind}"]
    if accuracy.median_db is not None and accuracy.samples > 1:
        parts.append(f"median {sqnr(accuracy.median_db, None)}")
    if accuracy.worst_sample is not None and accuracy.samples > 1:
        one = accuracy.worst_sample
        parts.append(f"worst {sqnr(one.sqnr_db, None)} (sample {one.number})")
    if accuracy.worst_output is not None:
        parts.append(f"worst output {accuracy.worst_output}")
    return ", ".join(parts)


def calibrated_on(quantization: Quantization) -> str:
    """Return the samples that the ranges come from."""
    if not quantization.samples:
        return "no samples needed"
    source = quantization.source
    kind = "made-up sample" if source.startswith("synthetic") else "sample"
    return f"{count(quantization.samples, kind)} ({source.removeprefix('synthetic, ')})"


def extra_macs(budget: Budget) -> str:
    """Return the extra MACs that were spent on accuracy, and the gain."""
    what = [count(len(budget.repeated), "layer")] if budget.repeated else []
    if budget.channels:
        copies = sum(channel.copies for channel in budget.channels)
        what.append(f"{count(copies, 'channel')} of {count(len(budget.channels), 'tensor')}")
    if not what:
        return f"no extra MACs: {_why_nothing(budget)}"
    gain = f"{sqnr(budget.before_db, None)} -> {sqnr(budget.simulated_db, None)} simulated"
    where = ", before the final Softmax or Sigmoid" if budget.unsaturated else ""
    cost = f"{budget.extra_percent:.1f} % more MACs"
    return f"{' and '.join(what)} repeated for {cost}: {gain}{where}"


def _why_nothing(budget: Budget) -> str:
    goal, before = budget.min_sqnr_db, budget.before_db
    if goal is not None and before is not None and before >= goal:
        return f"{before:.1f} dB reach the goal of {goal:g} dB"
    if budget.biasless:
        layers = count(budget.biasless, "layer")
        return f"the device adds no bias to {layers}, and copies of a layer differ by their biases"
    return f"no repetition for {budget.max_extra_percent:g} % more MACs improves it"


def kept_scales(found: SourceScales) -> str:
    """Return how many scales and weights are those of the quantized model."""
    tensors = f"{found.tensors} of {count(found.all_tensors, 'tensor')}"
    layers = f"{found.layers} of {count(found.all_layers, 'layer')}"
    return f"scales kept of {tensors}, integer weights kept of {layers}"


def compiled(one: VelaEstimate) -> str:
    """Return operators on NPU and CPU, cycles and memory, as Vela estimates them."""
    if one.error:
        return f"Vela does not compile it: {one.error}"
    mega = (one.cycles or 0) / 1e6
    return (
        f"Vela: {one.npu_operators} operators on the NPU, {one.cpu_operators} on the CPU; "
        f"about {mega:.2f} million cycles, {one.inference_ms} ms, {one.sram_kib} KiB of SRAM, "
        f"{one.flash_kib} KiB of flash"
    )


def padded(padding: HostPadding) -> str:
    """Return the number of tensors that the host pads, their traffic and the gain."""
    if not padding.tensors:
        return "no tensor padded on the host: no gain, or more bytes than --max-extra-bytes"
    what = f"{count(len(padding.tensors), 'tensor')} padded on the host"
    if padding.extra_bytes is not None:
        more = "" if padding.extra_percent is None else f" ({padding.extra_percent:.0f} %)"
        what += f" for {quantity(padding.extra_bytes)} more bytes that cross{more}"
    return what if padding.gain_db is None else f"{what}: about {padding.gain_db:+.1f} dB"


def quantization(quant: Quantization) -> list[str]:
    """Return format, method, samples, and other steps of the quantization."""
    parts = [f"format {quant.format}", f"method {quant.method}", calibrated_on(quant)]
    parts += [extra_macs(quant.budget)] if quant.budget is not None else []
    parts += [padded(quant.host_padding)] if quant.host_padding is not None else []
    parts += [summed(quant.partial_sums)] if quant.partial_sums is not None else []
    return parts + ([kept_scales(quant.source_scales)] if quant.source_scales is not None else [])


def summed(sums: PartialSums) -> str:
    """Return the number of partial sums, their cost, and the layer that costs most."""
    number = sum(one.tensors for one in sums.layers)
    what = f"{count(number, 'partial sum')} of {count(len(sums.layers), 'layer')} rounded to int8"
    costs = [(layer.cost_db, layer.node) for layer in sums.layers if layer.cost_db is not None]
    if sums.cost_db is None or not costs:
        return what
    most, node = max(costs)
    worst = f", {most:.1f} of them by {node}" if len(sums.layers) > 1 else f", by {node}"
    return f"{what}: about {sums.cost_db:.1f} dB{worst}"
