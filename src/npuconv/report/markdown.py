"""The report as Markdown that fits a job summary: tables first, long lists folded away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from npuconv.report.digest import (
    OVERVIEW_HEAD,
    Entry,
    Group,
    accepted,
    by_pass,
    overview_row,
    ranked_layers,
    removed,
    standing,
    tally,
)
from npuconv.report.markdown_parts import NAMES, code, few, folded, table, text
from npuconv.report.markdown_plan import placement, planned
from npuconv.report.unreadable import Unreadable
from npuconv.report.words import (
    bought,
    calibrated_on,
    count,
    difference,
    measured_on,
    padded,
    percent,
    scores,
    sqnr,
    verdict_label,
)
from npuconv.schemas.report import Report

_ICONS = {"refused": "❌", "convertible": "✅", "converted": "✅"}
_WORST = 5


def render(report: Report) -> str:
    """One report as GitHub flavoured Markdown."""
    return _join(_document(report))


def render_many(reports: Sequence[Report], unreadable: Sequence[Unreadable] = ()) -> str:
    """A table of all reports, what is no model, then each of the reports."""
    refused = sum(not report.ok for report in reports)
    rows = [
        [code(model), code(target), *rest]
        for model, target, *rest in (overview_row(report) for report in reports)
    ]
    missing = f", {count(len(unreadable), 'file')} unreadable" if unreadable else ""
    head = f"# {count(len(reports), 'report')}, {refused} refused{missing}"
    shown = table(OVERVIEW_HEAD, rows, right=4)
    errors = "\n".join(f"- ❌ {code(path)}: {text(message)}" for path, message in unreadable)
    return _join([head, shown, errors, *(block for one in reports for block in _document(one))])


def _document(report: Report) -> list[str]:
    sections = (
        _findings,
        _accepted,
        planned,
        _rewrites,
        placement,
        _unknown_limits,
        _quantization,
        _removed,
    )
    return [*_verdict(report), *(block for section in sections for block in section(report))]


def _verdict(report: Report) -> list[str]:
    summary = report.summary
    icon = "⚠️" if report.is_doubtful else _ICONS[summary.verdict]
    title = f"{icon} {verdict_label(report)}: {code(report.model.path)}"
    return [
        f"## {title} on {code(report.target.name)}",
        *(f"> ⚠️ not judged: {text(one)}" for one in summary.not_judged),
        f"**{text(summary.headline)}**",
        *(f"> ⚠️ {text(warning)}" for warning in summary.warnings),
    ]


def _findings(report: Report) -> list[str]:
    groups = standing(report)
    if not groups:
        return ["No findings."]
    rows = [_group_row(group) for group in groups]
    head = ("severity", "rule", "findings", "fix", "source")
    shown = table(head, rows, columns=(2,))
    return [f"### Findings: {tally(report)}", shown, *(_nodes(group) for group in groups)]


def _accepted(report: Report) -> list[str]:
    lines = [
        f"- {text(one.code)} {text(one.name)}, {code(one.node) if one.node else 'the model'}: "
        f"{text(one.message)}"
        for group in accepted(report)
        for one in group.findings
    ]
    title = f"{count(len(lines), 'finding')} accepted by the baseline"
    return [folded(title, lines)] if lines else []


def _group_row(group: Group) -> list[str]:
    status = f"{group.severity.value}, unknown" if group.status == "unknown" else group.severity
    fixes, sources = (_several(texts) for texts in (group.fixes, group.sources))
    rule = f"{text(group.code)} {text(group.name)}"
    return [str(status), rule, str(len(group.findings)), fixes, sources]


def _several(texts: Sequence[str]) -> str:
    more = f"<br>... and {len(texts) - 3} more" if len(texts) > 3 else ""
    return "<br>".join(text(one) for one in texts[:3]) + more or "-"


def _nodes(group: Group) -> str:
    """The nodes of one rule, folded away."""
    lines = [f"- {_names(entry)}: {text(entry.text)}" for entry in group.entries]
    title = f"{text(group.code)} {text(group.name)}: {count(len(group.findings), 'finding')}"
    return folded(title, lines)


def _names(entry: Entry) -> str:
    names = [code(one.node) if one.node else "the model" for one in entry.findings]
    return few(names[:NAMES], len(names))


def _rewrites(report: Report) -> list[str]:
    rows = [
        [
            code(one.name),
            str(len(one.rewrites)),
            difference(one.largest, one.unmeasured),
            text(one.references),
        ]
        for one in by_pass(report)
    ]
    if not rows:
        return []
    head = ("pass", "changes", "largest difference", "measured against")
    shown = table(head, rows, columns=(1,))
    return [f"### Rewritten: {count(len(report.rewrites), 'change')}", shown]


def _removed(report: Report) -> list[str]:
    lines = [
        f"- {text(one.code)} {code(one.node)}: {text(one.message)}"
        for group in removed(report)
        for one in group.findings
    ]
    if not lines:
        return []
    return [folded(f"{count(len(lines), 'finding')} rewritten away", lines)]


def _unknown_limits(report: Report) -> list[str]:
    if not report.unknown_limits:
        return []
    rows = [
        [
            code(one.limit),
            text(", ".join(one.values)),
            str(one.nodes),
            code(one.example),
            text(one.source),
            text(one.assumption) or "-",
        ]
        for one in report.unknown_limits
    ]
    head = ("limit", "the model needs", "nodes", "for example", "source", "assumed")
    return ["### Unknown limits", table(head, rows, columns=(2,))]


def _quantization(report: Report) -> list[str]:
    quant, accuracy, blocks = report.quantization, report.accuracy, []
    if quant is not None:
        synthetic = ", **accuracy is unproven**" if quant.synthetic else ""
        line = f"Format {code(quant.format)}, method {code(quant.method)}, "
        blocks += ["### Quantization", f"{line}{text(calibrated_on(quant))}{synthetic}."]
        blocks += [f"**Budget**: {bought(quant.budget)}."] if quant.budget is not None else []
        price = quant.host_padding
        blocks += [f"**Host padding**: {padded(price)}."] if price is not None else []
    elif report.calibration is not None:
        blocks += ["### Calibration", f"{text(report.calibration.sentence)}."]
    if accuracy is not None:
        blocks.append(f"**Accuracy**: {scores(accuracy)}; on {text(measured_on(accuracy))}.")
        blocks += [f"- {text(note)}" for note in accuracy.notes]
    return blocks + _layers(report)


def _layers(report: Report) -> list[str]:
    shown = ranked_layers(report)[:_WORST]
    if not shown:
        return []
    rows = [
        [
            code(one.name),
            percent(one.noise_share),
            sqnr(one.alone_db, None),
            sqnr(one.sqnr_db, one.cosine),
            text(one.note),
        ]
        for one in shown
    ]
    head = ("layer that costs most", "of the noise", "if alone", "SQNR so far", "note")
    columns = len(head) if any(one.note for one in shown) else len(head) - 1
    return [table(head[:columns], [row[:columns] for row in rows], columns=(1, 2, 3))]


def _join(blocks: Iterable[str]) -> str:
    return "\n\n".join(block for block in blocks if block) + "\n"
