"""The report as Markdown that fits a job summary: tables first, long lists folded away."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from npuconv.report.digest import (
    OVERVIEW_HEAD,
    Entry,
    Group,
    by_pass,
    overview_row,
    places,
    ranked_layers,
    removed,
    standing,
    tally,
)
from npuconv.report.escape import plain
from npuconv.report.schema import Report
from npuconv.report.words import (
    LABELS,
    calibrated_on,
    count,
    difference,
    measured_on,
    quantity,
    ratio,
    scores,
    sqnr,
)

_ICONS = {"refused": "❌", "convertible": "✅", "converted": "✅"}
_WORST = 5
_NAMES = 20  # lines of a list, and nodes of a line; a job summary may hold one megabyte
# What Markdown could take for markup. An underscore inside of a word is none.
_MARKUP = re.compile(r"[&<>\\`*\[\]|~$#@]|(?<![^\W_])_|_(?![^\W_])|(?<=[a-z]):(?=//)")
_PLAIN_CODE = re.compile(r"[^`\\|]+")


def render(report: Report) -> str:
    """One report as GitHub flavoured Markdown."""
    return _join(_document(report))


def render_many(reports: Sequence[Report]) -> str:
    """A table of all reports, then each of them."""
    refused = sum(not report.ok for report in reports)
    rows = [
        [code(model), code(target), *rest]
        for model, target, *rest in (overview_row(report) for report in reports)
    ]
    head = f"# {count(len(reports), 'report')}, {refused} refused"
    table = _table(OVERVIEW_HEAD, rows, right=4)
    return _join([head, table, *(block for one in reports for block in _document(one))])


def text(untrusted: str) -> str:
    """Prose of which no part is markup."""
    return _MARKUP.sub(lambda hit: f"&#{ord(hit[0])};", plain(untrusted))


def code(untrusted: str) -> str:
    """A name in a code span; one with backticks, backslashes or pipes as HTML entities."""
    shown = plain(untrusted).strip()
    if not shown:
        return "-"
    if _PLAIN_CODE.fullmatch(shown):
        return f"`{shown}`"
    return f"<code>{text(shown)}</code>"


def _document(report: Report) -> list[str]:
    sections = (_findings, _rewrites, _placement, _unknown_limits, _quantization, _removed)
    return [*_verdict(report), *(block for section in sections for block in section(report))]


def _verdict(report: Report) -> list[str]:
    summary = report.summary
    title = f"{_ICONS[summary.verdict]} {LABELS[summary.verdict]}: {code(report.model.path)}"
    return [
        f"## {title} on {code(report.target.name)}",
        f"**{text(summary.headline)}**",
        *(f"> ⚠️ {text(warning)}" for warning in summary.warnings),
    ]


def _findings(report: Report) -> list[str]:
    groups = standing(report)
    if not groups:
        return ["No findings."]
    rows = [_group_row(group) for group in groups]
    head = ("severity", "rule", "findings", "fix", "source")
    table = _table(head, rows, columns=(2,))
    return [f"### Findings: {tally(report)}", table, *(_nodes(group) for group in groups)]


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
    return _folded(title, lines)


def _names(entry: Entry) -> str:
    names = [code(one.node) if one.node else "the model" for one in entry.findings]
    hidden = len(names) - _NAMES
    return ", ".join(names[:_NAMES]) + (f" and {hidden} more" if hidden > 0 else "")


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
    table = _table(head, rows, columns=(1,))
    return [f"### Rewritten: {count(len(report.rewrites), 'change')}", table]


def _removed(report: Report) -> list[str]:
    lines = [
        f"- {text(one.code)} {code(one.node)}: {text(one.message)}"
        for group in removed(report)
        for one in group.findings
    ]
    if not lines:
        return []
    return [_folded(f"{count(len(lines), 'finding')} rewritten away", lines)]


def _placement(report: Report) -> list[str]:
    rows = [
        [one.name, str(one.nodes), one.node_share, quantity(one.macs), one.mac_share]
        for one in places(report)
    ]
    if not rows:
        return []
    crossings = count(report.summary.transitions, "transition")
    table = _table(("runs on", "nodes", "share", "MACs", "share"), rows, columns=(1, 2, 3, 4))
    return ["### Placement", table, f"{crossings} between device and host."]


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
    return ["### Unknown limits", _table(head, rows, columns=(2,))]


def _quantization(report: Report) -> list[str]:
    quant, accuracy, blocks = report.quantization, report.accuracy, []
    if quant is not None:
        synthetic = ", **synthetic: accuracy is unproven**" if quant.synthetic else ""
        line = f"Format {code(quant.format)}, method {code(quant.method)}, "
        blocks += ["### Quantization", f"{line}{text(calibrated_on(quant))}{synthetic}."]
    if accuracy is not None:
        blocks.append(f"**Accuracy**: {scores(accuracy)}; on {measured_on(accuracy)}.")
    rows = [
        [code(one.name), sqnr(one.sqnr_db, one.cosine), ratio(one.cosine), text(one.note)]
        for one in ranked_layers(report)[:_WORST]
    ]
    if rows:
        head = ("layer that loses most", "SQNR", "cosine", "note")
        blocks.append(_table(head, rows, columns=(1, 2)))
    return blocks


def _table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    columns: Iterable[int] = (),
    right: int = 0,
) -> str:
    """A table; ``columns`` are flush right, or the last ``right`` ones."""
    flush = {*columns, *range(len(head) - right, len(head))}
    rule = ["---:" if at in flush else "---" for at in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def _folded(title: str, lines: Sequence[str]) -> str:
    """A list that opens on a click; a very long one is cut."""
    hidden = len(lines) - _NAMES
    more = [f"- ... and {hidden} more"] if hidden > 0 else []
    body = "\n".join([*lines[:_NAMES], *more])
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def _join(blocks: Iterable[str]) -> str:
    return "\n\n".join(block for block in blocks if block) + "\n"
