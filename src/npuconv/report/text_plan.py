"""The plan in the text: what every node was, what it becomes, and what that costs."""

from __future__ import annotations

from npuconv.report.layout import elide, hang
from npuconv.report.planned import PlanGroup, plan
from npuconv.report.text_view import Block, View
from npuconv.report.words import count
from npuconv.schemas.report import Report

_ENTRIES = 8  # groups that are shown unless verbose


def planned(report: Report, view: View) -> Block:
    """Return the section on nodes rewritten for the target; when verbose, node by node."""
    if not report.plan:
        return []
    groups = plan(report, each=view.verbose)
    shown = groups if view.verbose else groups[:_ENTRIES]
    hidden = sum(len(group.rows) for group in groups[len(shown) :])
    return [
        *view.title(f"Plan: {count(len(report.plan), 'node')} rewritten"),
        *(line for group in shown for line in _entry(group, view)),
        *view.more(hidden, 2),
    ]


def _entry(group: PlanGroup, view: View) -> Block:
    others = len(group.rows) - 1
    more = f" and {others} more" if others else ""
    name = elide(view.safe(group.first.node), view.width - len(more) - 4)
    costs = [f"MACs {group.macs}, weights {group.weights}"] if group.works else []
    forms = [form for choice in group.choices for form in choice]
    return [
        f"  {name}{more}:",
        *(line for text in (group.text, *costs, *forms) for line in _line(text, view)),
    ]


def _line(text: str, view: View) -> Block:
    return hang(view.safe(text), view.width, first="      ", rest="        ")
