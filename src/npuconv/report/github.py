"""The findings as annotations of a GitHub workflow.

One annotation per rule, because GitHub shows only the first ten of a kind in a step; the
nodes are named in its message. What the converter removed, and what a baseline accepts, is
not annotated; how much is accepted is said with the verdict.
"""

from __future__ import annotations

from collections.abc import Sequence

from npuconv.report.digest import Entry, Group, standing
from npuconv.report.escape import plain, shortened
from npuconv.report.unreadable import Unreadable
from npuconv.report.words import count, verdict_label
from npuconv.schemas.report import Report

_LEVELS = {"error": "error", "warning": "warning", "note": "notice"}
_NAMES = 3
LONGEST = 1000  # characters of a line of an annotation
_ENTRIES = 10


def render(report: Report) -> str:
    """One report: what is not judged, the verdict, what a reader must know, then the rules."""
    summary, path = report.summary, report.model.path
    accepted = f"; {count(summary.accepted, 'finding')} accepted" if summary.accepted else ""
    verdict = f"{path} on {report.target.name}: {summary.headline}{accepted}"
    level = "error" if summary.exit_code else "notice"
    lines = [_annotation("warning", path, "not judged", [one]) for one in summary.not_judged]
    lines += [_annotation(level, path, verdict_label(report), [verdict])]
    lines += [_annotation("warning", path, "npuconv", [one]) for one in summary.warnings]
    lines += [_rule(group, path) for group in standing(report)]
    return "\n".join(lines) + "\n"


def render_many(reports: Sequence[Report], unreadable: Sequence[Unreadable] = ()) -> str:
    """The annotations of all reports, and one for each file that is no model."""
    errors = [_annotation("error", path, "UNREADABLE", [text]) + "\n" for path, text in unreadable]
    return "".join([*errors, *(render(report) for report in reports)]) or "\n"


def _rule(group: Group, path: str) -> str:
    entries = group.entries
    lines = [_entry(entry) for entry in entries[:_ENTRIES]]
    if len(entries) > _ENTRIES:
        lines.append(f"... and {len(entries) - _ENTRIES} more")
    lines += [f"fix: {fix}" for fix in group.fixes[:_NAMES]]
    lines += [f"source: {source}" for source in group.sources[:_NAMES]]
    return _annotation(_LEVELS[group.severity.value], path, f"{group.code} {group.name}", lines)


def _entry(entry: Entry) -> str:
    names = [one.node or "the model" for one in entry.findings]
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return f"{', '.join(names[:_NAMES])}{more}: {entry.text}"


def _annotation(level: str, path: str, title: str, lines: Sequence[str]) -> str:
    message = "%0A".join(_data(line) for line in lines)
    return f"::{level} file={_property(path)},title={_property(title)}::{message}"


def _data(text: str) -> str:
    return shortened(plain(text), LONGEST).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
