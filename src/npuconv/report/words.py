"""Numbers as people read them; the same words in every format."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from npuconv.schemas.report import (
    Accuracy,
    Budget,
    Device,
    HostPadding,
    MacShare,
    OutputAccuracy,
    PartAccuracy,
    Port,
    Quantization,
    Report,
    Subgraph,
)

UNKNOWN_MACS = "unknown (dynamic shape)"
_LABELS = {"refused": "REFUSED", "convertible": "OK", "converted": "CONVERTED"}
_EMPTY = "nothing-on-device"


def verdict_label(report: Report) -> str:
    """The verdict in a word or two; a model of which nothing runs on the device is not OK."""
    verdict = report.summary.verdict
    empty = verdict == "convertible" and any(f.name == _EMPTY for f in report.findings)
    return "HOST ONLY" if empty else _LABELS[verdict]


def count(number: int, noun: str) -> str:
    """``1 node``, ``3 nodes``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def document(source: str) -> str:
    """Return the document that a source cites: ``notes/X`` of ``npu:45 in_c (notes/X)``."""
    head, bracket, quoted = source.rpartition("(")
    return quoted.rstrip(")") if bracket and head else source


def quantity(number: int | None) -> str:
    """A number of MACs with its unit: ``1.2 G``."""
    if number is None:
        return UNKNOWN_MACS
    value, units = float(number), ["", " k", " M", " G", " T"]
    while value >= 999.95 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.1f}{units[0]}" if units[0] else str(number)


def size(number: int | None) -> str:
    """A number of bytes with its unit: ``4.6 KiB``."""
    if number is None:
        return "unknown"
    value, units = float(number), [" B", " KiB", " MiB", " GiB"]
    while value >= 1023.95 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{number} B" if units[0] == " B" else f"{value:.1f}{units[0]}"


def shape(dims: Sequence[int | str | None]) -> str:
    """``1 x 3 x 224 x ?``."""
    return " x ".join("?" if one is None else str(one) for one in dims) or "one number"


def change(before: str, after: str) -> str:
    """Both, or one where nothing changes."""
    return before if before == after else f"{before} -> {after}"


def share(part: int | None, whole: int | None) -> str:
    """A share in per cent; never rounded to all or nothing when it is not."""
    if part is None or not whole:
        return "-"
    percent = 100 * part / whole
    if 99.9 < percent < 100:
        return "> 99.9 %"
    if 0 < percent < 0.1:
        return "< 0.1 %"
    return f"{percent:.1f} %"


def total_macs(report: Report) -> int | None:
    """All MACs of the model, or ``None`` when those of one placement are unknown."""
    macs = [part.macs for part in report.summary.placement.values()]
    return None if None in macs else sum(number or 0 for number in macs)


def device_change(device: Device) -> str:
    """The share of the MACs that runs on the device: ``12.0 % before rewriting, 100.0 % after``."""
    before, after = (_mac_share(one) for one in (device.macs_before, device.macs_after))
    return f"{before} before rewriting, {after} after"


def _mac_share(macs: MacShare) -> str:
    if macs.device == 0 or macs.total == 0:
        return "0.0 %" if macs.total != 0 else "none"
    return share(macs.device, macs.total) if macs.device and macs.total else "unknown"


def traffic(device: Device) -> str:
    """``2 subgraphs on the device; per inference 3.0 KiB to it and 12.5 KiB back``."""
    there, back = size(device.to_device.bytes), size(device.to_host.bytes)
    if device.to_device.bytes is None and device.to_host.bytes is None:
        moved = "how many bytes cross is unknown (dynamic shape)"
    else:
        moved = f"per inference {there} to it and {back} back"
    return f"{count(len(device.subgraphs), 'subgraph')} on the device; {moved}"


def kept_float(report: Report) -> str:
    """Return the cost of `keep_float` in words; empty if it is not given."""
    found = report.device.kept_float if report.device else None
    if report.device is None or found is None:
        return ""
    each = [
        f"{one.pattern!r} {count(one.nodes, 'node')}, {quantity(one.macs)} MACs"
        for one in found.patterns
    ]
    crossing = _sum(report.device.to_device.bytes, report.device.to_host.bytes)
    return (
        f"kept float: {'; '.join(each)}; {report.summary.transitions} transitions instead of "
        f"{found.transitions_without}, {change(size(found.bytes_without), size(crossing))} cross"
    )


def _sum(*numbers: int | None) -> int | None:
    return None if None in numbers else sum(number or 0 for number in numbers)


def subgraph_row(one: Subgraph) -> tuple[str, ...]:
    """One subgraph of the device; the same in every format."""
    given, made = (_bytes(ports) for ports in (one.inputs, one.outputs))
    return (
        str(one.number),
        str(one.nodes),
        "unknown" if one.macs is None else quantity(one.macs),
        one.first,
        one.last,
        given,
        made,
    )


def _bytes(ports: Sequence[Port]) -> str:
    sizes = [port.bytes for port in ports]
    return size(None if None in sizes else sum(number or 0 for number in sizes))


def device_share(report: Report) -> str:
    """The share of the MACs that runs on the device."""
    device = report.summary.placement.get("device")
    whole = total_macs(report)
    if device is None or not whole:
        return "unknown" if whole is None else "-"
    return share(device.macs, whole)


def difference(largest: float | None, unmeasured: int = 0) -> str:
    """The largest difference of some rewrites, and how many were not measured."""
    if largest is None:
        return "not measured"
    text = "0 (exact)" if largest == 0 else f"{largest:.2g}"
    return f"{text} ({unmeasured} not measured)" if unmeasured else text


def sqnr(decibel: float | None, cosine: float | None) -> str:
    """A signal to noise ratio; ``None`` with a cosine means no noise at all."""
    if decibel is None:
        return "not measured" if cosine is None else "exact"
    return f"{decibel:.1f} dB"


def output_rows(accuracy: Accuracy) -> list[tuple[str, bool, str, str, str]]:
    """Outputs and what they are put together from: name, whether a part, SQNR, cosine, top-1."""
    found = []
    for one in accuracy.outputs:
        answers = percent(one.top1_agreement)
        found.append((one.name, False, _measured(one), ratio(one.cosine), answers))
        found += [(p.name, True, _measured(p), ratio(p.cosine), "-") for p in one.parts]
    return found


def _measured(one: OutputAccuracy | PartAccuracy) -> str:
    """The SQNR of what always was measured; without a cosine there is none to tell."""
    if one.sqnr_db is None and one.cosine is None:
        return "zeros or not finite"
    return sqnr(one.sqnr_db, one.cosine)


def ratio(value: float | None) -> str:
    """A cosine: enough digits to tell 0.9999 from 1."""
    return "-" if value is None else f"{value:.5f}"


def percent(value: float | None) -> str:
    """An agreement or fraction of 0..1, in per cent."""
    return "-" if value is None else f"{100 * value:.1f} %"


def scores(accuracy: Accuracy) -> str:
    """The end to end accuracy in one line."""
    parts = [f"SQNR {sqnr(accuracy.sqnr_db, accuracy.cosine)}"]
    if accuracy.interval_db is not None:
        parts[0] += f" ({interval(accuracy.interval_db)} expected on new samples)"
    if accuracy.cosine is not None:
        parts.append(f"cosine {ratio(accuracy.cosine)}")
    if accuracy.top1_agreement is not None:
        parts.append(f"top-1 agreement {percent(accuracy.top1_agreement)}")
    return ", ".join(parts)


def interval(ends: tuple[float, float]) -> str:
    """Lowest and highest SQNR, whole numbers: it is not known better."""
    return f"{math.floor(ends[0])} to {math.ceil(ends[1])} dB"


def measured_on(accuracy: Accuracy) -> str:
    """Return in words the samples that accuracy was measured on, and how far they differ."""
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
    """Return in words the samples that the ranges come from."""
    if not quantization.samples:
        return "no samples needed"
    kind = "synthetic sample" if quantization.source.startswith("synthetic") else "sample"
    return f"{count(quantization.samples, kind)} ({quantization.source})"


def bought(budget: Budget) -> str:
    """Return in words what was spent on accuracy, and the gain."""
    if not budget.repeated and not budget.channels:
        return f"nothing bought: {_why_nothing(budget)}"
    change = f"{sqnr(budget.before_db, None)} -> {sqnr(budget.simulated_db, None)} simulated"
    where = ", before what saturates the outputs" if budget.unsaturated else ""
    what = " and ".join(_what_was_bought(budget))
    return f"{what} repeated for {budget.extra_percent:.1f} % more MACs: {change}{where}"


def _what_was_bought(budget: Budget) -> Iterator[str]:
    if budget.repeated:
        yield count(len(budget.repeated), "layer")
    if budget.channels:
        copies = sum(one.copies for one in budget.channels)
        yield f"{count(copies, 'channel')} of {count(len(budget.channels), 'tensor')}"


def padded(price: HostPadding) -> str:
    """Return in words the tensors that the host pads, their traffic and the gain."""
    if not price.tensors:
        return "nothing crosses to be padded: it would not pay, or not fit --max-extra-bytes"
    what = f"{count(len(price.tensors), 'tensor')} padded on the host"
    if price.extra_bytes is not None:
        more = "" if price.extra_percent is None else f" ({price.extra_percent:.0f} %)"
        what += f" for {quantity(price.extra_bytes)} more bytes that cross{more}"
    return what if price.gain_db is None else f"{what}: about {price.gain_db:+.1f} dB"


def _why_nothing(budget: Budget) -> str:
    goal, before = budget.min_sqnr_db, budget.before_db
    if goal is not None and before is not None and before >= goal:
        return f"{before:.1f} dB reach the {goal:g} dB asked for"
    return f"nothing for {budget.max_extra_percent:g} % more MACs makes it better"


def unique(texts: Iterable[str]) -> tuple[str, ...]:
    """The texts that are not empty, each once, in order."""
    return tuple(dict.fromkeys(text for text in texts if text))
