"""The result of ``npuconv verify`` as a page, and the sections on a vendor's tool."""

from __future__ import annotations

from typing import NamedTuple

from npuconv.report.html import LayerBar, layer_bar, page
from npuconv.report.html_ranges import bar_style, position
from npuconv.report.sections import Item, Note, Section, Table
from npuconv.report.words import count, error_texts, percent
from npuconv.schemas.quality import LayerQuant
from npuconv.schemas.verify import VendorReport, VerifiedLayer, VerifyReport


class SideBySide(NamedTuple):
    """One layer of both models: both ranges on one track, and the error."""

    layer: VerifiedLayer
    bar: LayerBar  # the SQNR as the bar of a chart
    float_bar: str  # CSS of the range in the float model; empty if no value is finite
    int8_bar: str  # CSS of the range in the int8 model; empty if no value is finite
    zero: float  # position of 0 on the track, in per cent


def render(report: VerifyReport) -> str:
    """Render the page: outputs, a chart of the layers, and both models layer by layer."""
    rows = [side_by_side(layer) for layer in report.layers]
    return page(
        "verify.html.j2",
        report=report,
        rows=rows,
        worst_first=sorted(rows, key=lambda row: row.layer.rank),
        outputs=sorted(report.outputs, key=lambda output: output.rank),
        vendor=vendor_sections(report.vendor) if report.vendor else [],
    )


def vendor_sections(vendor: VendorReport, most: int | None = None) -> list[Section]:
    """Return the verdict of the vendor's tool, its outputs, and nodes that are not on the NPU.

    ``most`` nodes of one reason are named; None: all.
    """
    notes = {
        "verdict": [": ".join(filter(None, (vendor.verdict, vendor.message)))],
        "placement": [", ".join(f"{count(n, 'node')} on {d}" for d, n in vendor.devices.items())],
        "estimates": [", ".join(f"{name} {value:g}" for name, value in vendor.figures.items())],
        "note": vendor.notes,
    }
    if vendor.total is not None:
        sqnr, cosine, largest = error_texts(vendor.total)
        notes["SQNR"] = [f"{sqnr}, cosine {cosine}, largest error {largest}"]
    lines = [Note(label, texts) for label, texts in notes.items() if any(texts)]
    chip = f" for {vendor.chip}" if vendor.chip else ""
    title = f"{vendor.title}: {vendor.name} {vendor.version}{chip}"
    sections = [Section(title, lines, style="" if vendor.verdict == "accepted" else "red")]
    rows = []
    for output in vendor.outputs:
        numbers = output.differences or ()
        shares = [percent(number / max(1, sum(numbers))) for number in numbers] or ["-"] * 5
        rows.append((output.name, error_texts(output)[0], *shares, str(output.largest or 0)))
    if rows:
        has_steps = any(output.differences for output in vendor.outputs)
        head = ("output", "SQNR", "equal", "1 step", "2", "3", "more", "largest")[
            : 8 if has_steps else 2
        ]
        title = "outputs of the simulator" + ", and steps from the int8 model" * has_steps
        table = Table(head, [row[: len(head)] for row in rows], range(1, len(head)))
        sections.append(Section(title, [table]))
    names: dict[tuple[str, str], list[str]] = {}
    for layer in vendor.layers:
        if layer.device != "NPU":
            reason = layer.reason or f"on {layer.device}"
            names.setdefault((layer.op_type, reason), []).append(layer.name)
    items = [Item(nodes[:most], [reason], op) for (op, reason), nodes in names.items()]
    return sections + ([Section("not on the NPU", items)] if items else [])


def side_by_side(layer: VerifiedLayer) -> SideBySide:
    """Return both ranges of a layer on a track that holds them and 0."""
    ranges = (layer.float_range, layer.int8_range)
    bounds = [bound for value_range in ranges if value_range for bound in value_range]
    low, high = min(0.0, *bounds, 0.0), max(0.0, *bounds, 0.0)
    float_bar, int8_bar = (bar_style(*span, low, high) if span else "" for span in ranges)
    bar = layer_bar(LayerQuant(name=layer.name, sqnr_db=layer.sqnr_db, cosine=layer.cosine))
    return SideBySide(layer, bar, float_bar, int8_bar, position(0.0, low, high))
