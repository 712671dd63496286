"""Result and cost of the rewrites, for each node of the source model.

Every node stands for source nodes, and belongs to the first of them. So the costs of all
source nodes add up to those of the model, before and after, whatever was split or merged
in between; records of single rewrites would not, where one works on another's result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from npuconv.diagnostics import Finding, Severity
from npuconv.legalize.registry import PASSES, Phase
from npuconv.model import query
from npuconv.model.conv import Window, window
from npuconv.partition import Cost, cost
from npuconv.schemas import report as schema

if TYPE_CHECKING:
    from npuconv.legalize.context import RewriteRecord
    from npuconv.legalize.legal import Legalized
    from npuconv.model.core import Model
    from npuconv.model.types import Node
    from npuconv.target import Target

_MANY = 4  # different operators that are named one by one


@dataclass
class Source:
    """The model as it came: what its nodes are, by label, and what they cost."""

    described: dict[str, str] = field(default_factory=dict)
    ops: dict[str, frozenset[str]] = field(default_factory=dict)
    costs: dict[str, Cost] = field(default_factory=dict)
    taken: frozenset[str] = frozenset()  # convolutions the device takes without a rewrite

    def settle(self, model: Model, target: Target, findings: Iterable[Finding]) -> None:
        """Note costs and what the device takes, of a model that has only been tidied up.

        Weights that come from a chain of constants, and batch normalizations, would stand
        against convolutions that need nothing of what is done for this target.
        """
        self.costs = {label: cost(nodes) for label, nodes in _by_label(model).items()}
        errors = [f for f in findings if f.severity == Severity.ERROR]
        refused = {label for f in errors for label in f.origin}
        listed = [n for n in model.nodes("Conv") if target.operator("Conv") is not None]
        self.taken = frozenset(model.label(node) for node in listed) - refused


def look(model: Model) -> Source:
    """The model as it came."""
    nodes = _by_label(model)
    described = {label: _describe(listed) for label, listed in nodes.items()}
    return Source(described, {label: _ops(listed) for label, listed in nodes.items()})


def macs_before(work: Legalized) -> schema.MacShare:
    """Multiply-accumulates on the device, before anything was done for it."""
    costs, taken = work.before.costs, work.before.taken
    device = [one.macs for label, one in costs.items() if label in taken]
    return schema.MacShare(device=add(device), total=add(one.macs for one in costs.values()))


def add(numbers: Iterable[int | None]) -> int | None:
    """The sum; None where one is not known."""
    listed = list(numbers)
    return None if None in listed else sum(number or 0 for number in listed)


def rows(work: Legalized) -> tuple[schema.Planned, ...]:
    """One row for every source node that becomes something else, for the target or any."""
    graph = _Graph(work.model)
    found = [
        _row(work, graph, label, records)
        for label, records in _records(work, graph).items()
        if label in work.before.costs
    ]
    return tuple(row for row in found if row is not None)


def _records(work: Legalized, graph: _Graph) -> dict[str, list[RewriteRecord]]:
    """The rewrites that matter, by source node: not names, defaults, constants, fusions."""
    found: dict[str, list[RewriteRecord]] = {label: [] for label in work.before.described}
    for record in work.ctx.rewrites:
        for label in record.origin:
            replaced = graph.replaces(label, work.before.ops.get(label, frozenset()))
            if label in found and (replaced or _is_for_target(record)):
                found[label].append(record)
    return {label: records for label, records in found.items() if records}


def _is_for_target(record: RewriteRecord) -> bool:
    item = PASSES.get(record.pass_name)
    return item is not None and item.phase == Phase.LEGALIZE


class _Graph:
    """The nodes of the rewritten graph by the source nodes they stand for."""

    def __init__(self, model: Model) -> None:
        self.made = _by_label(model)
        self.merged: dict[str, list[Node]] = {}
        for node in model.nodes():
            for label in model.origin(node)[1:]:
                self.merged.setdefault(label, []).append(node)

    def replaces(self, label: str, ops: frozenset[str]) -> bool:
        """Return whether a source node became operators of other types only."""
        return label in self.made and not ops & _ops(self.made[label])

    def describe(self, label: str) -> str:
        """Describe what a source node has become."""
        if label in self.made:
            return _describe(self.made[label])
        merged = self.merged.get(label, [])
        working = [node for node in merged if node.op in query.CONVOLUTIONS] or merged
        return f"part of {_describe(working)}" if working else "nothing"


def _row(
    work: Legalized, graph: _Graph, label: str, records: list[RewriteRecord]
) -> schema.Planned | None:
    was, becomes = work.before.described[label], graph.describe(label)
    nodes = graph.made.get(label, [])
    before, after = work.before.costs[label], cost(nodes)
    if _is_idle(before, after) and work.before.ops[label] <= _ops(nodes):
        return None  # moved, or given a Squeeze of its neighbour's: what matters is told there
    if was == becomes:
        own = [r for r in records if r.node == label]
        if not own and before == after:
            return None
        was, becomes = _told(own, was)
    return schema.Planned(
        node=label,
        passes=tuple(dict.fromkeys(r.pass_name for r in records)),
        was=was,
        becomes=becomes,
        macs_before=before.macs,
        macs_after=after.macs,
        weight_bytes_before=before.weight_bytes,
        weight_bytes_after=after.weight_bytes,
        choices=tuple(choice(work, r) for r in records if r.forms and r.node == label),
    )


def _is_idle(*costs: Cost) -> bool:
    return all(one.macs == 0 and not one.convolutions for one in costs)


def _told(records: list[RewriteRecord], text: str) -> tuple[str, str]:
    """Add what the first and last record say to descriptions that are the same otherwise."""
    if not records:
        return text, text
    return f"{text}, {records[0].before}", f"{text}, {records[-1].after}"


def choice(work: Legalized, record: RewriteRecord) -> schema.Choice:
    """The forms that a pass chose from."""
    alternatives = tuple(
        schema.Alternative(
            form=form.name,
            macs=form.cost.macs,
            weight_bytes=form.cost.weight_bytes,
            moved_bytes=form.moved_bytes,
            cost=form.total(work.target),
            obstacle=form.obstacle,
            chosen=form.chosen,
        )
        for form in record.forms
    )
    return schema.Choice(pass_name=record.pass_name, alternatives=alternatives)


def _by_label(model: Model) -> dict[str, list[Node]]:
    found: dict[str, list[Node]] = {}
    for node in model.nodes():
        found.setdefault(model.label(node), []).append(node)
    return found


def _ops(nodes: Iterable[Node]) -> frozenset[str]:
    return frozenset(query.qualified(node) for node in nodes)


def _describe(nodes: list[Node]) -> str:
    """``4 Conv 1x1 + Concat``; a long list is counted, not told."""
    if len(nodes) == 1:  # nearly always
        return form_of(nodes[0])
    counts = Counter(form_of(node) for node in nodes)
    if len(counts) > _MANY:
        counts = Counter(query.qualified(node) for node in nodes)
    return " + ".join(f"{n} {text}" if n > 1 else text for text, n in counts.items())


def form_of(node: Node) -> str:
    """``Conv 3x3, stride 2, group 4``: what tells it from others, channels left out."""
    win = window(node)
    name = query.qualified(node)
    return name if win is None else _form(name, win)


@lru_cache(maxsize=4096)  # a network has few windows that are different
def _form(name: str, win: Window) -> str:
    if win.kernel is None:
        return name
    name += "" if len(win.kernel) == 2 else f"{len(win.kernel)}D"
    return ", ".join((f"{name} {_times(win.kernel)}", *_details(win)))


def _details(win: Window) -> list[str]:
    """Strides, dilations and groups, where they are not all 1."""
    parts = []
    if set(win.strides) != {1}:
        parts.append(f"stride {_times(win.strides)}")
    if set(win.dilations) != {1}:
        parts.append(f"dilation {_times(win.dilations)}")
    if win.group != 1:
        depthwise = win.group == win.in_channels
        parts.append("depthwise" if depthwise else f"group {win.group}")
    return parts


def _times(values: tuple[int, ...]) -> str:
    """``3x3``; one number for one axis."""
    return "x".join(str(v) for v in values)
