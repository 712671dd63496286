"""The plan and the placement in the Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from npuconv.report.digest import places
from npuconv.report.markdown_parts import NAMES, code, few, folded, table, text
from npuconv.report.planned import PlanGroup, plan
from npuconv.report.words import count, device_change, kept_float, quantity, subgraph_row, traffic
from npuconv.schemas.report import Report, Subgraph

_FEW = 3  # nodes of a row that are named


def planned(report: Report) -> list[str]:
    """Return the section on nodes that are rewritten for the target, and their cost."""
    groups = plan(report)
    if not groups:
        return []
    title = f"{count(len(report.plan), 'node')} rewritten"
    head = ("node", "was", "becomes", "MACs", "weights")
    shown = table(head, map(_plan_row, groups[:NAMES]), right=2)
    hidden = sum(len(group.rows) for group in groups[NAMES:])
    more = f"... and {count(hidden, 'more node')}." if hidden else ""
    return [f"### Plan: {title}", shown, more, *_choices(groups)]


def _plan_row(group: PlanGroup) -> list[str]:
    names = few([code(row.node) for row in group.rows[:_FEW]], len(group.rows))
    costs = [group.macs, group.weights] if group.works else ["-", "-"]
    return [names, text(group.first.was), text(group.first.becomes), *costs]


def _choices(groups: Sequence[PlanGroup]) -> list[str]:
    """Return the alternatives that were considered, as a folded list."""
    lines = [
        f"- {few([code(group.first.node)], len(group.rows))}: {text('; '.join(choice))}"
        for group in groups
        for choice in group.choices
    ]
    return [folded("What else was considered", lines)] if lines else []


def placement(report: Report) -> list[str]:
    """Return the section on where nodes run and what crosses between device and host."""
    rows = [
        [one.name, str(one.nodes), one.node_share, quantity(one.macs), one.mac_share]
        for one in places(report)
    ]
    if not rows:
        return []
    crossings = count(report.summary.transitions, "transition")
    shown = table(("runs on", "nodes", "share", "MACs", "share"), rows, columns=(1, 2, 3, 4))
    return ["### Placement", shown, f"{crossings} between device and host.", *_device(report)]


def _device(report: Report) -> list[str]:
    device = report.device
    if device is None:
        return []
    lines = [
        f"- {count(one.nodes, 'node')} from {code(one.first)} to {code(one.last)}: {_subgraph(one)}"
        for one in device.subgraphs
    ]
    details = [folded("Subgraphs of the device", lines)] if lines else []
    return [
        f"{text(traffic(device))}.",
        f"**MACs on the device**: {device_change(device)}.",
        *([f"{text(kept)}."] if (kept := kept_float(report)) else []),
        *details,
    ]


def _subgraph(one: Subgraph) -> str:
    macs, given, made = (subgraph_row(one)[at] for at in (2, 5, 6))
    return f"{macs} MACs, {given} in, {made} out"
