"""The report as Markdown that fits a job summary: tables first, long lists folded away.

Untrusted text goes through ``text`` or ``code``, which leave nothing that is markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from npuconv.records import replace
from npuconv.report import Unreadable, groups
from npuconv.report.escape import plain, shortened
from npuconv.report.sections import Item, Note, Section, Table, overview, sections
from npuconv.report.words import count
from npuconv.schemas.batch import BatchReport
from npuconv.schemas.report import Report

# A job summary may hold one megabyte.
_MAX_LINES = 20  # lines of a list, nodes of a line, rows of a table
_MAX_OPEN = 3  # entries of a list that is not folded away
_MAX_FIXES = 3  # fixes or sources of a rule
_MAX_CHARS = 1000  # characters of a name or sentence

_ICONS = {"refused": "❌", "convertible": "✅", "converted": "✅"}
# Characters that Markdown may take for markup; an underscore inside of a word is plain text.
_MARKUP = re.compile(r"[&<>\\`*\[\]|~$#@]|(?<![^\W_])_|_(?![^\W_])|(?<=[a-z]):(?=//)")
_PLAIN_CODE = re.compile(r"[^`\\|]+")


def render(report: Report) -> str:
    """Render one report as GitHub flavoured Markdown."""
    return _join(_document(report))


def render_many(reports: Sequence[Report], unreadable: Sequence[Unreadable] = ()) -> str:
    """Render a table of all reports, the unreadable files, then each of the reports."""
    refused = sum(not report.ok for report in reports)
    missing = f", {count(len(unreadable), 'file')} unreadable" if unreadable else ""
    return _join([
        f"# {count(len(reports), 'report')}, {refused} refused{missing}",
        table(overview(reports)),
        "\n".join(f"- ❌ {code(path)}: {text(message)}" for path, message in unreadable),
        *(block for report in reports for block in _document(report)),
    ])  # fmt: skip


def render_batch(batch: BatchReport) -> str:
    """Render the summary of a batch: a table, and the causes of failure."""
    icon = "✅" if batch.ok else "❌"
    rows = [groups.batch_row(job) for job in batch.jobs]
    head: tuple[str, ...] = groups.BATCH_HEAD
    names = [0]
    if groups.shows_paths(batch):
        head, names = (head[0], "model", *head[1:]), [0, 1]
        rows = [(row[0], job.model, *row[1:]) for row, job in zip(rows, batch.jobs, strict=True)]
    causes = [
        f"- {code(job.name)}: **{text(job.status)}**: {text(job.message)}"
        for job in groups.not_converted(batch)
    ]
    return _join([
        f"## {icon} {code(batch.jobs_file)}: {text(batch.summary.headline)}",
        table(Table(head, rows, range(len(head) - 4, len(head)), names)),
        *(["### Not converted", "\n".join(causes)] if causes else []),
    ])  # fmt: skip


def text(untrusted: str) -> str:
    """Return prose without any markup, shortened."""
    short = shortened(plain(untrusted), _MAX_CHARS)
    return _MARKUP.sub(lambda hit: f"&#{ord(hit[0])};", short)


def code(untrusted: str) -> str:
    """Return a name in a code span; one with backticks, backslashes or pipes as HTML entities."""
    short = shortened(plain(untrusted).strip(), _MAX_CHARS)
    if not short:
        return "-"
    return f"`{short}`" if _PLAIN_CODE.fullmatch(short) else f"<code>{text(short)}</code>"


def table(data: Table) -> str:
    """Return a table; names are code, and columns of numbers are flush right."""
    rule = ["---:" if number in data.numbers else "---" for number in range(len(data.head))]
    rows = [
        [code(cell) if number in data.names else text(cell) for number, cell in enumerate(row)]
        for row in data.rows
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in (data.head, rule, *rows))


def _join(blocks: Iterable[str]) -> str:
    return "\n\n".join(block for block in blocks if block) + "\n"


def _document(report: Report) -> list[str]:
    blocks = [block for section in sections(report, by_node=False) for block in _section(section)]
    return [*_verdict(report), *([] if report.open_findings else ["No findings."]), *blocks]


def _verdict(report: Report) -> list[str]:
    summary = report.summary
    icon = "⚠️" if report.is_doubtful else _ICONS[summary.verdict]
    title = f"{icon} {groups.verdict(report)}: {code(report.model.path)}"
    return [
        f"## {title} on {code(report.target.name)}",
        *(f"> ⚠️ not judged: {text(sentence)}" for sentence in summary.not_judged),
        f"**{text(summary.headline)}**",
        *(f"> ⚠️ {text(warning)}" for warning in summary.warnings),
    ]


def _section(section: Section) -> list[str]:
    """Return the title and the parts, folded away where the section is."""
    blocks, lines = [], list[str]()
    for part in section.parts:
        if isinstance(part, Table):
            hidden = len(part.rows) - _MAX_LINES
            blocks.append(table(replace(part, rows=part.rows[:_MAX_LINES])))
            blocks += [f"... and {count(hidden, 'more row')}."] if hidden > 0 else []
        elif isinstance(part, Note):
            hidden = len(part.texts) - _MAX_FIXES
            more = [f"... and {hidden} more"] if hidden > 0 else []
            blocks.append(
                f"{part.label} {'<br>'.join([*map(text, part.texts[:_MAX_FIXES]), *more])}"
            )
        elif isinstance(part, Item):
            nodes = list(zip_longest(part.names, part.places, fillvalue=""))
            names = [
                (code(name) if name else "the model") + (f" ({text(place)})" if place else "")
                for name, place in nodes[:_MAX_LINES]
            ]
            names[-1] += f" and {len(nodes) - len(names)} more" if len(nodes) > len(names) else ""
            modules = f"{text(part.modules)}: " if part.modules else ""
            lines.append(f"- {modules}{', '.join(names)}: {text('; '.join(part.texts))}")
        else:
            lines.append(f"- {text(part)}")
    if section.folded:
        return [_folded(text(section.title), [*blocks, *_cut(lines)])]
    long = len(lines) > _MAX_OPEN
    entries = [_folded(f"{len(lines)} entries", _cut(lines))] if long else _cut(lines)
    return [f"### {text(section.title)}", *blocks, *entries]


def _folded(title: str, blocks: Sequence[str]) -> str:
    """Return blocks that open on a click."""
    body = "\n\n".join(blocks)
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def _cut(lines: Sequence[str]) -> list[str]:
    """Return the first lines as one block, with the number of the others."""
    hidden = len(lines) - _MAX_LINES
    more = [f"- ... and {hidden} more"] if hidden > 0 else []
    return ["\n".join([*lines[:_MAX_LINES], *more])] if lines else []
