"""A report as the output of a notebook's cell: the verdict, the numbers, warnings."""

from __future__ import annotations

from html import escape

from npuconv.report import brief, groups
from npuconv.report.escape import visible
from npuconv.schemas.report import Report

_COLOR = {"red": "#b3261e", "yellow": "#9a6700", "green": "#1a7f37"}
_MAX_ISSUES = 5


def render(report: Report) -> str:
    """Return HTML without scripts or styles of its own, for a part of a page."""
    color = _COLOR[groups.verdict_style(report)]
    rows = "".join(
        f'<tr><th style="text-align:left">{_safe(label)}</th>'
        f'<td style="text-align:left">{_safe(text)}</td></tr>'
        for label, text in brief.rows(report, report.model.path)
    )
    issues = brief.issues(report)
    items = "".join(
        f"<li>{_safe(f'{issue.label}: {issue.title} {issue.message}')}</li>"
        for issue in issues[:_MAX_ISSUES]
    )
    hidden = len(issues) - _MAX_ISSUES
    more = f"<li>and {hidden} more</li>" if hidden > 0 else ""
    listed = f"<ul>{items}{more}</ul>" if items else ""
    verdict = f'<b style="color:{color}">{_safe(brief.headline(report))}</b>'
    return f"<div>{verdict}<table>{rows}</table>{listed}</div>"


def _safe(text: str) -> str:
    return escape(visible(text))
