"""The tables of the text; a section that has nothing to say is not there."""

from __future__ import annotations

from collections.abc import Sequence

from npuconv.report.digest import (
    OVERVIEW_HEAD,
    by_pass,
    overview_row,
    places,
    ranked_layers,
)
from npuconv.report.layout import hang
from npuconv.report.text_view import Block, View
from npuconv.report.words import (
    bought,
    calibrated_on,
    count,
    device_change,
    difference,
    document,
    kept_float,
    measured_on,
    output_rows,
    padded,
    percent,
    quantity,
    scores,
    sqnr,
    subgraph_row,
    traffic,
)
from npuconv.schemas.report import LayerQuant, Report, Rewrite

_WORST = 5  # layers that are shown unless verbose


def rewrites(report: Report, view: View) -> Block:
    """Return the section on changes, by pass; when verbose, every change."""
    groups = by_pass(report)
    if not groups:
        return []
    rows = [
        (one.name, str(len(one.rewrites)), difference(one.largest, one.unmeasured), one.references)
        for one in groups
    ]
    head = ("pass", "changes", "largest difference", "measured against")
    lines = view.title(f"Rewritten: {count(len(report.rewrites), 'change')}")
    lines += view.table(head, rows, right=(1,), whole=(0,))
    return lines + _changes(report, view)


def _changes(report: Report, view: View) -> Block:
    if not view.verbose:
        return []
    return [line for one in report.rewrites for line in _change(one, view)]


def _change(one: Rewrite, view: View) -> Block:
    note = f" ({one.note})" if one.note else ""
    text = f"{one.pass_name}: {one.node or 'the model'}: {one.before} -> {one.after}{note}"
    return hang(view.safe(text), view.width, first="  ", rest="      ")


def refusals(report: Report, view: View) -> Block:
    """Return the section on near rewrites, and why they were not done; only when verbose."""
    if not (view.verbose and report.refusals):
        return []
    lines = view.title("Not rewritten")
    for one in report.refusals:
        text = view.safe(f"{one.pass_name}: {one.node or 'the model'}: {one.reason}")
        lines += hang(text, view.width, first="  ", rest="      ")
    return lines


def placement(report: Report, view: View) -> Block:
    """Return the section on where the nodes run, and their share of the work."""
    rows = [
        (one.name, str(one.nodes), one.node_share, quantity(one.macs), one.mac_share)
        for one in places(report)
    ]
    if not rows:
        return []
    crossings = count(report.summary.transitions, "transition")
    return [
        *view.title(f"Placement: {crossings} between device and host"),
        *view.table(("runs on", "nodes", "share", "MACs", "share"), rows, right=(1, 2, 3, 4)),
        *_device(report, view),
    ]


def _device(report: Report, view: View) -> Block:
    """Return the traffic, and the MACs before and after rewrites; when verbose, every subgraph."""
    device = report.device
    if device is None:
        return []
    lines = hang(traffic(device), view.width, first="  ", rest="    ")
    text = f"MACs on the device: {device_change(device)}"
    lines += hang(text, view.width, first="  ", rest="    ")
    if kept := kept_float(report):
        lines += hang(view.safe(kept), view.width, first="  ", rest="    ")
    if not (view.verbose and device.subgraphs):
        return lines
    head = ("subgraph", "nodes", "MACs", "from", "to", "in", "out")
    rows = [subgraph_row(one) for one in device.subgraphs]
    return lines + view.table(head, rows, right=(0, 1, 2, 5, 6))


def unknown_limits(report: Report, view: View) -> Block:
    """Return the section on undocumented limits, and the values that the model needs."""
    if not report.unknown_limits:
        return []
    lines = view.title("Unknown limits: ask the hardware's owner")
    rows = [
        (one.limit, ", ".join(one.values), str(one.nodes), document(one.source))
        for one in report.unknown_limits
        if one.values
    ]
    if rows:
        lines += view.table(("limit", "the model needs", "nodes", "source"), rows, right=(2,))
    assumed = [f"{one.limit} {one.assumption}" for one in report.unknown_limits if one.assumption]
    text = view.safe("Assumed meanwhile: " + "; ".join(assumed))
    return lines + (hang(text, view.width, first="  ", rest="    ") if assumed else [])


def quantization(report: Report, view: View) -> Block:
    """Return the section on how the ranges were chosen, and from which samples."""
    quant = report.quantization
    if quant is None:
        return _assumed(report, view)
    rows = [f"format {quant.format}", f"method {quant.method}", calibrated_on(quant)]
    rows += [bought(quant.budget)] if quant.budget is not None else []
    rows += [padded(quant.host_padding)] if quant.host_padding is not None else []
    synthetic = "; accuracy is unproven" if quant.synthetic else ""
    text = view.safe(", ".join(rows) + synthetic)
    return view.title("Quantization") + hang(text, view.width, first="  ", rest="  ")


def _assumed(report: Report, view: View) -> Block:
    """Return the section on the inputs that are assumed where no data is given."""
    if report.calibration is None:
        return []
    text = view.safe(report.calibration.sentence)
    return view.title("Calibration") + hang(text, view.width, first="  ", rest="  ")


def accuracy(report: Report, view: View) -> Block:
    """The int8 model against the float model, and where it loses most."""
    measured = report.accuracy
    if measured is None:
        return _layers(report, view)
    text = f"{scores(measured)}; on {measured_on(measured)}"
    lines = view.title("Accuracy: int8 against float")
    lines += hang(view.safe(text), view.width, first="  ", rest="  ")
    for note in measured.notes:
        lines += hang(view.safe(note), view.width, first="  ", rest="    ")
    rows = output_rows(measured)
    if len(rows) > 1 or view.verbose:
        named = [(f"  of it {name}" if is_part else name, *rest) for name, is_part, *rest in rows]
        lines += view.table(("output", "SQNR", "cosine", "top-1"), named, right=(1, 2, 3))
    return lines + _layers(report, view)


def _layers(report: Report, view: View) -> Block:
    ranked = ranked_layers(report)
    if not ranked:
        return []
    shown = ranked if view.verbose else ranked[:_WORST]
    rows = [_layer(one) for one in shown]
    title = f"Layers that cost most ({len(shown)} of {len(ranked)})"
    head = ("layer", "of the noise", "if alone", "SQNR so far", "note")
    columns = len(head) if any(one.note for one in shown) else len(head) - 1
    return [
        *hang(title, view.width, first="  ", rest="  "),
        *view.table(head[:columns], [row[:columns] for row in rows], right=(1, 2, 3)),
    ]


def _layer(one: LayerQuant) -> tuple[str, ...]:
    share, alone = percent(one.noise_share), sqnr(one.alone_db, None)
    return (one.name, share, alone, sqnr(one.sqnr_db, one.cosine), one.note)


def timings(report: Report, view: View) -> Block:
    """Return the section on the time of each stage; empty if it was not asked for."""
    if not report.timings:
        return []
    rows = [(one.stage, f"{one.seconds:.2f} s") for one in report.timings]
    return view.title("Timings") + view.table(("stage", "time"), rows, right=(1,))


def overview(reports: Sequence[Report], view: View) -> Block:
    """One line for each of several reports."""
    if not reports:
        return ["no models"]
    rows = [overview_row(report) for report in reports]
    refused = sum(not report.ok for report in reports)
    title = f"{count(len(reports), 'report')}, {refused} refused"
    return view.title(title) + view.table(OVERVIEW_HEAD, rows, right=(3, 4, 5, 6))
