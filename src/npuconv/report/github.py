"""The findings as annotations of a GitHub workflow.

One annotation per rule, because GitHub shows only the first ten of a kind in a step; its
message names the nodes. It stands on the first line of training code that ``source_root`` has.
Findings that the converter removed or that a baseline accepts are not annotated; the verdict has
the number of accepted findings.
"""

from __future__ import annotations

from collections.abc import Sequence

from npuconv.report import Unreadable
from npuconv.report.escape import plain, shortened
from npuconv.report.groups import RuleFindings, modules, standing, verdict
from npuconv.report.words import count, node_text
from npuconv.rules.checks.limit_unknown import limit_unknown
from npuconv.schemas.batch import BatchReport
from npuconv.schemas.report import Report

_MAX_NAMES = 3  # nodes, fixes or sources
_MAX_ENTRIES = 10  # messages of an annotation
_MAX_CHARS = 1000  # characters of a line of an annotation


def render(report: Report) -> str:
    """Render the options that are not judged, the verdict, the warnings, then the rules."""
    summary, path = report.summary, report.model.path
    accepted = f"; {count(summary.accepted, 'finding')} accepted" if summary.accepted else ""
    headline = f"{path} on {report.target.name}: {summary.headline}{accepted}"
    level = "error" if summary.exit_code else "notice"
    lines = [_annotation("warning", path, "not judged", [text]) for text in summary.not_judged]
    lines += [_annotation(level, path, verdict(report), [headline])]
    lines += [_annotation("warning", path, "npuconv", [warning]) for warning in summary.warnings]
    lines += [_rule(group, path) for group in standing(report)]
    return "".join(lines)


def render_many(reports: Sequence[Report], unreadable: Sequence[Unreadable] = ()) -> str:
    """Render one annotation for each unreadable file, then the annotations of all reports."""
    errors = [_annotation("error", path, "UNREADABLE", [text]) for path, text in unreadable]
    return "".join([*errors, *map(render, reports)]) or "\n"


def render_batch(batch: BatchReport) -> str:
    """Render a line for the batch, a line for each job without a report, and the reports."""
    level = "notice" if batch.ok else "error"
    lines = [f"::{level} title=npuconv batch::{_data(batch.summary.headline)}\n"]
    lines += [
        _annotation("error", job.model, f"{job.name} {job.status}", [job.message])
        for job in batch.without_report
    ]
    return "".join([*lines, *map(render, batch.reports)])


def _rule(group: RuleFindings, path: str) -> str:
    lines = []
    for message in group.messages[:_MAX_ENTRIES]:
        names = list(map(node_text, message.findings))
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        counts = f"{text}: " if (text := modules(message.findings)) else ""
        lines.append(f"{counts}{', '.join(names[:_MAX_NAMES])}{more}: {message.text}")
    if len(group.messages) > _MAX_ENTRIES:
        lines.append(f"... and {len(group.messages) - _MAX_ENTRIES} more")
    lines += [f"fix: {fix}" for fix in group.fixes[:_MAX_NAMES]]
    lines += [f"source: {source}" for source in group.sources[:_MAX_NAMES]]
    level = group.label if group.label in ("error", "warning") else "notice"
    sources = [finding.node_source for finding in group.findings]
    frames = [source.frame for source in sources if source is not None and source.frame is not None]
    frame = next((frame for frame in frames if frame.path), None)
    if frame is None or group.code == limit_unknown.code:
        return _annotation(level, path, f"{group.code} {group.name}", lines)
    title = f"{group.code} {group.name}: {path}"
    return _annotation(level, frame.path, title, lines, frame.line)


def _annotation(level: str, path: str, title: str, lines: Sequence[str], number: int = 0) -> str:
    place = f"file={_property(path)}" + (f",line={number}" if number else "")
    message = "%0A".join(_data(line) for line in lines)
    return f"::{level} {place},title={_property(title)}::{message}\n"


def _data(text: str) -> str:
    return shortened(plain(text), _MAX_CHARS).replace("%", "%25")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
