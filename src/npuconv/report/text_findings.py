"""The findings in the text: by rule, what says the same taken together."""

from __future__ import annotations

from collections import Counter

from npuconv.diagnostics import Severity, Status
from npuconv.report.digest import Entry, Group, accepted, removed, standing
from npuconv.report.layout import cells, elide, hang
from npuconv.report.text_view import LABEL_STYLE, Block, View
from npuconv.schemas.report import FindingInfo, Report

_ENTRIES = 8  # different messages of one rule that are shown unless verbose
_NAMES = 3  # nodes that are named for one message unless verbose


def findings(report: Report, view: View) -> Block:
    """Return the findings left to look at; accepted ones in brief; removed ones when verbose."""
    groups = [group for group in standing(report) if _shown(group, report, view)]
    groups += removed(report) if view.verbose else ()
    blocks = [_group(group, view) for group in groups]
    blocks += [_accepted(report, view)] if accepted(report) else []
    return [line for at, block in enumerate(blocks) for line in ([""] if at else []) + block]


def _accepted(report: Report, view: View) -> Block:
    """A line for each rule, and the nodes too when verbose."""
    lines = view.title(f"Accepted by the baseline: {report.summary.accepted}")
    for group in accepted(report):
        lines += hang(_title(group), view.width, first="  ", rest="    ")
        if view.verbose:
            lines += [line for entry in group.entries for line in _entry(entry, view)]
    return lines


def _shown(group: Group, report: Report, view: View) -> bool:
    """The table of unknown limits says it better, unless they block or there is no table."""
    open_limit = group.status is Status.UNKNOWN and group.severity is not Severity.ERROR
    return view.verbose or not (open_limit and report.unknown_limits)


def _group(group: Group, view: View) -> Block:
    if group.severity is Severity.NOTE and not view.verbose:
        return _brief(group, view)
    entries = group.entries
    shown = entries if view.verbose else entries[:_ENTRIES]
    hidden = sum(len(entry.findings) for entry in entries[len(shown) :])
    return [
        *_heading(group, view),
        *(line for entry in shown for line in _entry(entry, view)),
        *view.more(hidden, 2),
        *view.labelled("fix: ", group.fixes, 2),
        *view.labelled("source: ", group.sources, 2),
    ]


def _brief(group: Group, view: View) -> Block:
    """A note in three lines: what it says, and of which operators."""
    counts = Counter(one.op_type or "model" for one in group.findings)
    named = ", ".join(f"{op} x {n}" if n > 1 else op for op, n in sorted(counts.items()))
    messages = dict.fromkeys(one.message for one in group.findings)
    return [
        *_heading(group, view),
        *hang(view.safe(next(iter(messages))), view.width, first="  ", rest="  "),
        *view.more(len(messages) - 1, 2),
        *hang(view.safe(named), view.width, first="  ", rest="  "),
    ]


def _heading(group: Group, view: View) -> Block:
    lines = hang(view.safe(_title(group)), view.width, rest="  ")
    return [view.accent(line, group.label, LABEL_STYLE[group.label]) for line in lines]


def _title(group: Group) -> str:
    return f"{group.label} {group.code} {group.name} ({group.tally})"


def _entry(entry: Entry, view: View) -> Block:
    """One message; with its node in front, or the nodes below when there are several."""
    message = view.safe(entry.text) + view.safe(_removal(entry.first))
    if len(entry.findings) > 1:
        return _many(entry, message, view)
    node = _node(entry.first, view, view.width - 3)
    line = f"  {node}: {message}"
    if cells(line) <= view.width:
        return [line]
    return [f"  {node}:", *hang(message, view.width, first="      ", rest="      ")]


def _many(entry: Entry, message: str, view: View) -> Block:
    op_type = view.safe(entry.first.op_type) or "model"
    text = f"{op_type}: {message} (x {len(entry.findings)})"
    lines = hang(text, view.width, first="  ", rest="      ")
    shown = entry.findings if view.verbose else entry.findings[:_NAMES]
    names = (view.safe(one.node) or "the model" for one in shown)
    lines += [f"      {elide(name, view.width - 6)}" for name in names]
    return lines + view.more(len(entry.findings) - len(shown), 6)


def _node(finding: FindingInfo, view: View, width: int) -> str:
    """The node's name with its operator, elided to fit."""
    if not finding.node:
        return "the model"
    suffix = f" ({elide(view.safe(finding.op_type), 24)})" if finding.op_type else ""
    return elide(view.safe(finding.node), width - cells(suffix)) + suffix


def _removal(finding: FindingInfo) -> str:
    if finding.status is not Status.REWRITTEN:
        return ""
    into = f" into {finding.rewritten_into}" if finding.rewritten_into else ""
    return f"; rewritten by {finding.rewritten_by or 'the converter'}{into}"
