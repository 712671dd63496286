"""Sections of a report: titles, lines, tables and lists, the same in every format for people."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from npuconv.findings import Status
from npuconv.records import dataclass, field
from npuconv.report import groups, words
from npuconv.report.groups import RuleFindings
from npuconv.report.words import count
from npuconv.schemas.quality import Budget, LayerQuant, PartialSums
from npuconv.schemas.report import Device, Report

if TYPE_CHECKING:
    from npuconv.schemas.verify import VerifiedLayer

_MAX_MODULES = 12  # rows of layers by module
_VERDICT_STYLES = {"REFUSED": "red", "HOST": "yellow", "OK": "green", "CONVERTED": "green"}


@dataclass(frozen=True)
class Table:
    """A table; columns of numbers are flush right."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[int] = ()
    names: Sequence[int] = (0,)  # columns with names of the model or of passes
    styles: Mapping[str, str] = field(default_factory=dict)  # colours of cells by their first word
    hints: Mapping[tuple[int, int], str] = field(default_factory=dict)  # tooltips by row, column


@dataclass(frozen=True)
class Item:
    """Texts on some nodes; an empty name means the whole model."""

    names: Sequence[str]
    texts: Sequence[str]
    op: str = ""  # operator of the nodes; may be empty
    places: Sequence[str] = ()  # module and line of training code of each node; may be empty
    modules: str = ""  # number of nodes by module; may be empty


@dataclass(frozen=True)
class Note:
    """Texts behind one label: fixes, sources, numbers."""

    label: str
    texts: Sequence[str]


Element = str | Table | Item | Note  # a text is a paragraph


@dataclass(frozen=True)
class Section:
    """A title and the parts below it."""

    title: str
    parts: Sequence[Element] = ()
    label: str = ""  # label of a finding, the first word of the title
    style: str = ""  # colour of a verdict
    folded: bool = False  # whether a page shows the section on a click only


def sections(report: Report, *, by_node: bool) -> list[Section]:
    """Return the sections behind the verdict that have parts.

    Args:
        report: the report.
        by_node: whether nodes with the same rewrite are listed separately.
    """
    by_module = modules(report.quantization.layers if report.quantization else ())
    listed = [
        *(_group(group) for group in (*groups.standing(report), *groups.removed(report))),
        _accepted(report),
        _plan(report, by_node=by_node),
        _rewrites(report),
        Section("Not rewritten", [": ".join(row) for row in refusals(report).rows], folded=True),
        *_placement(report),
        _unknown_limits(report),
        _quantization(report),
        _accuracy(report),
        _layers(report),
        Section("Modules by cost", [by_module] if by_module.rows else []),
        Section("Timings", [timings(report)] if report.timings else []),
    ]  # fmt: skip
    return [section for section in listed if section.parts]


def overview(reports: Sequence[Report], names: Sequence[str] = ()) -> Table:
    """Return the table of several reports, with ``names`` of the models instead of their paths."""
    head = ("model", "verdict", "error", "warn", "limits", "crossings", "device")
    rows = []
    for report, name in zip(reports, names or [r.model.path for r in reports], strict=True):
        counts = (*groups.tally(report), groups.undocumented(report), report.summary.transitions)
        label, share = words.verdict_label(report), words.device_share(report)
        rows.append((name, label, *map(str, counts), share))
    return Table(head, rows, range(2, len(head)), styles=_VERDICT_STYLES)


def _group(group: RuleFindings) -> Section:
    title = f"{group.label} {group.code} {group.name} ({group.tally})"
    notes = [Note("fix:", group.fixes), Note("source:", group.sources)]
    parts: list[Element] = [*_items(group), *(note for note in notes if note.texts)]
    return Section(title, parts, group.label, folded=group.status is Status.REWRITTEN)


def _items(group: RuleFindings) -> Iterator[Item]:
    for findings, text in group.messages:
        first = findings[0]
        if first.status is Status.REWRITTEN:
            into = f" into {first.rewritten_into}" if first.rewritten_into else ""
            text += f"; rewritten by {first.rewritten_by or 'the converter'}{into}"
        nodes, places = zip(*((f.node, words.place(f.node_source)) for f in findings), strict=True)
        yield Item(nodes, [text], first.op_type, places, groups.modules(findings))


def _accepted(report: Report) -> Section:
    parts: list[Element] = []
    for group in groups.accepted(report):
        parts += [f"{group.label} {group.code} {group.name} ({group.tally})", *_items(group)]
    title = f"{count(report.summary.accepted, 'finding')} accepted by the baseline"
    return Section(title, parts, folded=True)


def _plan(report: Report, *, by_node: bool) -> Section:
    items = []
    for group in groups.plan(report, by_node=by_node):
        costs = ["MACs {}, weights {}".format(*group.costs)] if group.costs else []
        forms = [form for choice in group.choices for form in choice]
        texts = [f"{group.was} -> {group.becomes}", *costs, *forms]
        items.append(Item([row.node for row in group.rows], texts))
    return Section(f"Plan: {count(len(report.plan), 'node')} rewritten", items)


def _rewrites(report: Report) -> Section:
    changes = (
        f"{rewrite.pass_name}: {rewrite.node or 'the model'}: {rewrite.before} -> {rewrite.after}"
        + (f" ({rewrite.note})" if rewrite.note else "")
        for rewrite in report.rewrites
    )
    parts: list[Element] = [passes(report), *changes] if report.rewrites else []
    return Section(f"Rewritten: {count(len(report.rewrites), 'change')}", parts, folded=True)


def passes(report: Report) -> Table:
    """Return the passes with their numbers of changes, and the differences that were measured."""
    head = ("pass", "changes", "largest difference", "measured against")
    rows = []
    by_pass = groups.group_by(report.rewrites, lambda rewrite: rewrite.pass_name)
    for name, rewrites in by_pass.items():
        references = ", ".join(words.unique(rewrite.reference for rewrite in rewrites)) or "-"
        rows.append((name, str(len(rewrites)), groups.difference(rewrites), references))
    return Table(head, rows, (1,))


def refusals(report: Report) -> Table:
    """Return the rewrites that were considered but not done."""
    rows = [
        (refusal.pass_name, refusal.node or "the model", refusal.reason)
        for refusal in report.refusals
    ]
    return Table(("pass", "node", "reason"), rows, names=(1,))


def _placement(report: Report) -> Iterator[Section]:
    """Yield nodes and work of each placement, and the subgraphs of the device."""
    device = report.device
    if not report.summary.placement:
        return
    parts: list[Element] = [placement(report)]
    if device is not None:
        macs = f"MACs on the device: {words.device_change(device)}"
        parts += filter(None, [words.traffic(device), macs, words.kept_float(report)])
    crossings = count(report.summary.transitions, "crossing")
    yield Section(f"Placement: {crossings} between device and host", parts)
    if device is not None and device.subgraphs:
        yield Section("Subgraphs", [subgraphs(device)], folded=True)


def placement(report: Report) -> Table:
    """Return nodes and MACs of each placement, and their shares."""
    counts = report.summary.placement
    nodes, macs = sum(placed.nodes for placed in counts.values()), words.total_macs(report)
    rows = [
        (
            name,
            str(placed.nodes),
            words.share(placed.nodes, nodes),
            words.quantity(placed.macs),
            words.share(placed.macs, macs),
        )
        for name, placed in counts.items()
    ]
    return Table(("runs on", "nodes", "of nodes", "MACs", "of MACs"), rows, (1, 2, 3, 4), ())


def subgraphs(device: Device) -> Table:
    """Return nodes, MACs, first and last node, and bytes in and out of each subgraph."""
    head = ("#", "nodes", "MACs", "from", "to", "in", "out")
    rows, hints = [], {}
    for place, subgraph in enumerate(device.subgraphs):
        read, written = (
            words.size(words.total(port.bytes for port in ports))
            for ports in (subgraph.inputs, subgraph.outputs)
        )
        macs = "unknown" if subgraph.macs is None else words.quantity(subgraph.macs)
        number, nodes = str(subgraph.number), str(subgraph.nodes)
        rows.append((number, nodes, macs, subgraph.first, subgraph.last, read, written))
        hints[place, 5] = ", ".join(tensor.name for tensor in subgraph.inputs)
        hints[place, 6] = ", ".join(tensor.name for tensor in subgraph.outputs)
    return Table(head, rows, (0, 1, 2, 5, 6), (3, 4), hints=hints)


def _unknown_limits(report: Report) -> Section:
    """Return the undocumented limits, the values that the model needs, and the assumptions."""
    rows = [
        (limit.limit, ", ".join(limit.values), str(limit.nodes), words.document(limit.source))
        for limit in report.unknown_limits
        if limit.values
    ]
    parts: list[Element] = []
    if rows:
        parts.append(Table(("limit", "the model needs", "nodes", "source"), rows, (2,)))
    assumed = [f"{o.limit} {o.assumption}" for o in report.unknown_limits if o.assumption]
    parts += [f"Assumptions: {'; '.join(assumed)}"] if assumed else []
    return Section("Undocumented limits (confirm with the vendor)", parts)


def _quantization(report: Report) -> Section:
    """Return format, method and samples; without them the inputs that would be assumed."""
    quant, assumed = report.quantization, report.calibration
    if quant is None:
        return Section("Calibration", [] if assumed is None else [assumed.sentence])
    unproven = "; accuracy is unproven" if quant.synthetic else ""
    changed = quant.source_scales.changed if quant.source_scales is not None else ()
    parts: list[Element] = [f"{', '.join(words.quantization(quant))}{unproven}"]
    parts += [Item([scale.name], [scale.reason]) for scale in changed]
    tables = [
        partial_sums(quant.partial_sums) if quant.partial_sums is not None else None,
        repeated_layers(quant.budget) if quant.budget is not None else None,
    ]
    parts += [table for table in tables if table is not None and table.rows]
    return Section("Quantization", parts)


def partial_sums(sums: PartialSums) -> Table:
    """Return the layers whose partial sums are rounded, with their costs in dB."""
    rows = [
        (
            layer.node,
            str(layer.tensors),
            "?" if layer.cost_db is None else f"{layer.cost_db:.2f} dB",
        )
        for layer in sums.layers
    ]
    return Table(("layer", "partial sums", "cost"), rows, (1, 2))


def repeated_layers(budget: Budget) -> Table:
    """Return the layers that a budget repeats."""
    rows = [
        (layer.node, str(layer.times), words.quantity(layer.extra_macs))
        for layer in budget.repeated
    ]
    return Table(("layer", "times", "more MACs"), rows, (1, 2))


def _accuracy(report: Report) -> Section:
    accuracy = report.accuracy
    if accuracy is None:
        return Section("Accuracy")
    parts: list[Element] = [f"{words.scores(accuracy)}; on {words.measured_on(accuracy)}"]
    parts += accuracy.notes
    rows = [
        (f"part {tensor.name}" if is_part else tensor.name, *numbers)
        for tensor, is_part, *numbers in words.output_rows(accuracy)
    ]
    parts += [Table(("output", "SQNR", "cosine", "top-1"), rows, (1, 2, 3))] if rows else []
    return Section("Accuracy: int8 against float", parts)


def _layers(report: Report) -> Section:
    """Return the layers by their share of the noise; notes only if a layer has one."""
    head = ("layer", "of the noise", "if alone", "SQNR so far", "note")
    rows = [
        (
            layer.name,
            words.percent(layer.noise_share),
            words.sqnr(layer.alone_db, None),
            words.sqnr(layer.sqnr_db, layer.cosine),
            layer.note,
        )
        for layer in groups.ranked_layers(report)
    ]
    columns = len(head) if any(row[-1] for row in rows) else len(head) - 1
    table = Table(head[:columns], [row[:columns] for row in rows], (1, 2, 3))
    return Section("Layers by cost", [table] if rows else [])


def modules(layers: Sequence[LayerQuant | VerifiedLayer]) -> Table:
    """Return the layers by module of the training code; no rows if each layer has its own.

    Modules with most noise are divided into those inside; the SQNR includes earlier layers.
    """
    shares = {layer.name: getattr(layer, "noise_share", None) for layer in layers}
    is_shared = any(shares.values())

    def weigh(layer: LayerQuant | VerifiedLayer) -> float:
        """Return the share of the noise, else the power of the error."""
        if is_shared:
            return shares[layer.name] or 0.0
        return 0.0 if layer.sqnr_db is None else 10 ** (-layer.sqnr_db / 10)

    rows = []
    groups_by_module = groups.by_module(layers, lambda layer: layer.module, weigh, _MAX_MODULES)
    for module, members in groups_by_module.items():
        lowest = min(members, key=lambda layer: math.inf if (db := layer.sqnr_db) is None else db)
        noise = [words.percent(sum(map(weigh, members)))] if is_shared else []
        numbers = (words.sqnr(layer.sqnr_db, layer.cosine) for layer in (lowest, members[-1]))
        rows.append((module or "elsewhere", str(len(members)), *noise, *numbers))
    if len(groups_by_module.keys() - {""}) < 2 or len(rows) == len(layers):
        rows = []
    head = ("module", "layers", *["of the noise"][:is_shared], "lowest SQNR", "SQNR at its end")
    return Table(head, rows, range(1, len(head)))


def timings(report: Report) -> Table:
    """Return the seconds of each stage."""
    rows = [(timing.stage, f"{timing.seconds:.2f} s") for timing in report.timings or ()]
    return Table(("stage", "time"), rows, (1,), ())
