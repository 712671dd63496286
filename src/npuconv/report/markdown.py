"""The report as Markdown that fits a job summary: tables first, long lists folded away.

Untrusted text goes through ``text`` or ``code``, which leave nothing that is markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from npuconv.report import Unreadable, groups
from npuconv.report.escape import plain, shortened
from npuconv.report.sections import Item, Note, Section, Table, sections
from npuconv.report.words import count
from npuconv.schemas.batch import BatchJob, BatchReport
from npuconv.schemas.report import Report

# A job summary may hold one megabyte.
_MAX_LINES = 20  # lines of a list, nodes of a line, rows of a table
_MAX_OPEN = 3  # entries of a list that is not folded away
_MAX_FIXES = 3  # fixes or sources of a rule
_MAX_CHARS = 1000  # of a name or sentence

_ICONS = {"refused": "❌", "convertible": "✅", "converted": "✅"}
# What Markdown could take for markup. An underscore inside of a word is none.
_MARKUP = re.compile(r"[&<>\\`*\[\]|~$#@]|(?<![^\W_])_|_(?![^\W_])|(?<=[a-z]):(?=//)")
_PLAIN_CODE = re.compile(r"[^`\\|]+")


def render(report: Report) -> str:
    """Render one report as GitHub flavoured Markdown."""
    return _join(_document(report))


def render_many(reports: Sequence[Report], unreadable: Sequence[Unreadable] = ()) -> str:
    """Render a table of all reports, the unreadable files, then each of the reports."""
    refused = sum(not report.ok for report in reports)
    missing = f", {count(len(unreadable), 'file')} unreadable" if unreadable else ""
    rows = [
        [code(model), code(target), *rest]
        for model, target, *rest in map(groups.overview_row, reports)
    ]
    return _join([
        f"# {count(len(reports), 'report')}, {refused} refused{missing}",
        table(groups.OVERVIEW_HEAD, rows, right=4),
        "\n".join(f"- ❌ {code(path)}: {text(message)}" for path, message in unreadable),
        *(block for one in reports for block in _document(one)),
    ])  # fmt: skip


def render_batch(batch: BatchReport, base: str = "") -> str:
    """Render the summary of a batch: a table, and the causes of failure."""
    del base
    icon = "✅" if batch.ok else "❌"
    shows_paths = groups.shows_paths(batch)
    name, *rest = groups.BATCH_HEAD
    head = (name, "model", *rest) if shows_paths else groups.BATCH_HEAD
    causes = [
        f"- {code(job.name)}: **{text(job.status)}**: {text(job.message)}"
        for job in groups.not_converted(batch)
    ]
    return _join([
        f"## {icon} {code(batch.jobs_file)}: {text(batch.summary.headline)}",
        table(head, (_job(job, shows_paths) for job in batch.jobs), right=4),
        *(["### Not converted", "\n".join(causes)] if causes else []),
    ])  # fmt: skip


def _job(job: BatchJob, shows_path: bool) -> list[str]:
    name, *rest = groups.batch_row(job)
    return [code(name), *([code(job.model)] if shows_path else []), *map(text, rest)]


def text(untrusted: str) -> str:
    """Return prose without any markup, shortened."""
    shown = shortened(plain(untrusted), _MAX_CHARS)
    return _MARKUP.sub(lambda hit: f"&#{ord(hit[0])};", shown)


def code(untrusted: str) -> str:
    """Return a name in a code span; one with backticks, backslashes or pipes as HTML entities."""
    shown = shortened(plain(untrusted).strip(), _MAX_CHARS)
    if not shown:
        return "-"
    return f"`{shown}`" if _PLAIN_CODE.fullmatch(shown) else f"<code>{text(shown)}</code>"


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    columns: Iterable[int] = (),
    right: int = 0,
) -> str:
    """Return a table; the given ``columns``, or the last ``right`` ones, are flush right."""
    flush = {*columns, *range(len(head) - right, len(head))}
    rule = ["---:" if at in flush else "---" for at in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def folded(title: str, lines: Sequence[str]) -> list[str]:
    """Return a list that opens on a click, cut if it is long; nothing without lines."""
    return [f"<details><summary>{title}</summary>\n\n{body}\n\n</details>" for body in _cut(lines)]


def _join(blocks: Iterable[str]) -> str:
    return "\n\n".join(block for block in blocks if block) + "\n"


def _document(report: Report) -> list[str]:
    blocks = [block for section in sections(report, each=False) for block in _section(section)]
    return [*_verdict(report), *([] if report.left else ["No findings."]), *blocks]


def _verdict(report: Report) -> list[str]:
    summary = report.summary
    icon = "⚠️" if report.is_doubtful else _ICONS[summary.verdict]
    title = f"{icon} {groups.verdict(report)}: {code(report.model.path)}"
    return [
        f"## {title} on {code(report.target.name)}",
        *(f"> ⚠️ not judged: {text(one)}" for one in summary.not_judged),
        f"**{text(summary.headline)}**",
        *(f"> ⚠️ {text(warning)}" for warning in summary.warnings),
    ]


def _section(section: Section) -> list[str]:
    """Return the title and the parts, folded away where the section is."""
    blocks, lines = [], list[str]()
    for part in section.parts:
        if isinstance(part, Table):
            rows = [
                [code(cell) if at in part.names else text(cell) for at, cell in enumerate(row)]
                for row in part.rows[:_MAX_LINES]
            ]
            hidden = len(part.rows) - _MAX_LINES
            more = [f"... and {count(hidden, 'more row')}."] if hidden > 0 else []
            blocks += [table(part.head, rows, columns=part.numbers), *more]
        elif isinstance(part, Note):
            blocks.append(f"{part.label}: {_several(part.texts)}")
        elif isinstance(part, Item):
            lines.append(f"- {_names(part.names)}: {text('; '.join(part.texts))}")
        else:
            lines.append(f"- {text(part)}")
    if section.folded:
        body = "\n\n".join([*blocks, *_cut(lines)])
        return [f"<details><summary>{text(section.title)}</summary>\n\n{body}\n\n</details>"]
    listed = _cut(lines) if len(lines) <= _MAX_OPEN else folded(f"{len(lines)} entries", lines)
    return [f"### {text(section.title)}", *blocks, *listed]


def _cut(lines: Sequence[str]) -> list[str]:
    """Return the first lines as one block, with the number of the others."""
    hidden = len(lines) - _MAX_LINES
    more = [f"- ... and {hidden} more"] if hidden > 0 else []
    return ["\n".join([*lines[:_MAX_LINES], *more])] if lines else []


def _several(texts: Sequence[str]) -> str:
    hidden = len(texts) - _MAX_FIXES
    more = f"<br>... and {hidden} more" if hidden > 0 else ""
    return "<br>".join(text(one) for one in texts[:_MAX_FIXES]) + more


def _names(names: Sequence[str]) -> str:
    shown = [code(name) if name else "the model" for name in names[:_MAX_LINES]]
    hidden = len(names) - len(shown)
    return ", ".join(shown) + (f" and {hidden} more" if hidden > 0 else "")
