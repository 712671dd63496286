"""Sections of a report: titles, lines, tables and lists, the same in text and in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from npuconv.findings import Status
from npuconv.report import groups, words
from npuconv.report.groups import Entry, Group
from npuconv.report.words import count
from npuconv.schemas.report import Report


@dataclass(frozen=True)
class Table:
    """A table; columns of numbers are flush right."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Sequence[int] = ()
    names: Sequence[int] = (0,)  # columns with names of the model or of passes


@dataclass(frozen=True)
class Item:
    """Texts on some nodes; without a name they are on the model."""

    names: Sequence[str]
    texts: Sequence[str]
    op: str = ""  # operator of the nodes; may be empty


@dataclass(frozen=True)
class Note:
    """Texts behind one label: fixes, sources."""

    label: str
    texts: Sequence[str]


Part = str | Table | Item | Note


@dataclass(frozen=True)
class Section:
    """A title and the parts below it."""

    title: str
    parts: Sequence[Part]
    label: str = ""  # of a finding, with which its title begins
    folded: bool = False  # whether a page shows it on a click only


def sections(report: Report, *, each: bool) -> list[Section]:
    """Return the sections behind the verdict that hold something.

    Args:
        report: what to show.
        each: whether nodes that are rewritten alike are listed one by one.
    """
    found = [
        *(_group(group) for group in (*groups.standing(report), *groups.removed(report))),
        _accepted(report),
        _plan(report, each=each),
        _rewrites(report),
        Section("Not rewritten", [
            f"{one.pass_name}: {one.node or 'the model'}: {one.reason}" for one in report.refusals
        ], folded=True),
        *_placement(report),
        _unknown_limits(report),
        _quantization(report),
        Section("Compiler", [words.compiled(report.vela)] if report.vela is not None else []),
        _accuracy(report),
        _layers(report),
        _timings(report),
    ]  # fmt: skip
    return [section for section in found if section.parts]


def _group(group: Group) -> Section:
    title = f"{group.label} {group.code} {group.name} ({group.tally})"
    notes = [Note("fix", group.fixes), Note("source", group.sources)]
    parts: list[Part] = [*map(_item, group.entries), *(note for note in notes if note.texts)]
    return Section(title, parts, group.label, folded=group.status is Status.REWRITTEN)


def _item(entry: Entry) -> Item:
    one, text = entry.first, entry.text
    if one.status is Status.REWRITTEN:
        into = f" into {one.rewritten_into}" if one.rewritten_into else ""
        text += f"; rewritten by {one.rewritten_by or 'the converter'}{into}"
    return Item([finding.node for finding in entry.findings], [text], one.op_type)


def _accepted(report: Report) -> Section:
    parts: list[Part] = []
    for group in groups.accepted(report):
        parts += [f"{group.label} {group.code} {group.name} ({group.tally})"]
        parts += map(_item, group.entries)
    title = f"{count(report.summary.accepted, 'finding')} accepted by the baseline"
    return Section(title, parts, folded=True)


def _plan(report: Report, *, each: bool) -> Section:
    items = []
    for group in groups.plan(report, each=each):
        costs = [f"MACs {group.macs}, weights {group.weights}"] if group.works else []
        forms = [form for choice in group.choices for form in choice]
        items.append(Item([row.node for row in group.rows], [group.text, *costs, *forms]))
    return Section(f"Plan: {count(len(report.plan), 'node')} rewritten", items)


def _rewrites(report: Report) -> Section:
    changes = (
        f"{rewrite.pass_name}: {rewrite.node or 'the model'}: {rewrite.before} -> {rewrite.after}"
        + (f" ({rewrite.note})" if rewrite.note else "")
        for rewrite in report.rewrites
    )
    rows = [one.row for one in groups.by_pass(report)]
    parts: list[Part] = [Table(groups.PASS_HEAD, rows, (1,)), *changes] if rows else []
    return Section(f"Rewritten: {count(len(report.rewrites), 'change')}", parts, folded=True)


def _placement(report: Report) -> Iterator[Section]:
    """Yield nodes and work of each placement, and the subgraphs of the device."""
    rows, device = [place.row for place in groups.places(report)], report.device
    if not rows:
        return
    parts: list[Part] = [Table(groups.PLACE_HEAD, rows, (1, 2, 3, 4), ())]
    if device is not None:
        macs = f"MACs on the device: {words.device_change(device)}"
        parts += filter(None, [words.traffic(device), macs, words.kept_float(report)])
    crossings = count(report.summary.transitions, "crossing")
    yield Section(f"Placement: {crossings} between device and host", parts)
    if device is not None and device.subgraphs:
        head = ("subgraph", "nodes", "MACs", "from", "to", "in", "out")
        cells = [words.subgraph_row(subgraph) for subgraph in device.subgraphs]
        yield Section("Subgraphs", [Table(head, cells, (0, 1, 2, 5, 6), (3, 4))], folded=True)


def _unknown_limits(report: Report) -> Section:
    """Return the undocumented limits, the values that the model needs, and the assumptions."""
    rows = [
        (one.limit, ", ".join(one.values), str(one.nodes), words.document(one.source))
        for one in report.unknown_limits
        if one.values
    ]
    parts: list[Part] = []
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
    parts: list[Part] = [f"{', '.join(words.quantization(quant))}{unproven}"]
    parts += [Item([one.name], [one.reason]) for one in changed]
    return Section("Quantization", parts)


def _accuracy(report: Report) -> Section:
    measured, parts = report.accuracy, list[Part]()
    if measured is not None:
        parts = [f"{words.scores(measured)}; on {words.measured_on(measured)}", *measured.notes]
        rows = words.output_rows(measured)
        named = [(f"part {name}" if is_part else name, *rest) for name, is_part, *rest in rows]
        parts += [Table(("output", "SQNR", "cosine", "top-1"), named, (1, 2, 3))] if named else []
    return Section("Accuracy: int8 against float", parts)


def _layers(report: Report) -> Section:
    shown = groups.ranked_layers(report)
    head, rows = groups.layer_table(shown)
    named = [(one.name, *row) for one, row in zip(shown, rows, strict=True)]
    return Section("Layers by cost", [Table(("layer", *head), named, (1, 2, 3))] if named else [])


def _timings(report: Report) -> Section:
    rows = [(timing.stage, f"{timing.seconds:.2f} s") for timing in report.timings or ()]
    return Section("Timings", [Table(("stage", "time"), rows, (1,), ())] if rows else [])
