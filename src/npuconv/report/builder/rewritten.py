"""Rows of the report on rewrites: result and cost for each node of the source model.

Every node stands for source nodes, and belongs to the first of them. So the costs of all
source nodes add up to those of the model, before and after, whatever was split or merged
in between; records of single rewrites would not, where one works on another's result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.legalize.context import RewriteRecord
from npuconv.legalize.registry import PASSES, Phase
from npuconv.legalize.source import by_label, describe, operators
from npuconv.model import query
from npuconv.model.core import Model
from npuconv.model.types import Node
from npuconv.partition import Cost, cost
from npuconv.schemas import report as schema

if TYPE_CHECKING:
    from npuconv.legalize.legal import LegalModel


def rewritten_rows(legal: LegalModel) -> tuple[schema.RewriteRow, ...]:
    """Return a row for every source node that becomes something else."""
    graph = _Graph(legal.model)
    found = [
        _row(legal, graph, label, records)
        for label, records in _records(legal, graph).items()
        if label in legal.source.costs
    ]
    return tuple(row for row in found if row is not None)


def _records(legal: LegalModel, graph: _Graph) -> dict[str, list[RewriteRecord]]:
    """Return rewrites by source node, without those of names, defaults, constants, fusions."""
    found: dict[str, list[RewriteRecord]] = {label: [] for label in legal.source.forms}
    for record in legal.ctx.rewrites:
        for label in record.origin:
            replaced = graph.replaces(label, legal.source.ops.get(label, frozenset()))
            if label in found and (replaced or _is_for_target(record)):
                found[label].append(record)
    return {label: records for label, records in found.items() if records}


def _is_for_target(record: RewriteRecord) -> bool:
    item = PASSES.get(record.pass_name)
    return item is not None and item.phase == Phase.LEGALIZE


class _Graph:
    """Nodes of the rewritten graph by the source nodes they stand for."""

    def __init__(self, model: Model) -> None:
        self.made = by_label(model)
        self.merged: dict[str, list[Node]] = {}
        for node in model.nodes():
            for label in model.origin(node)[1:]:
                self.merged.setdefault(label, []).append(node)

    def replaces(self, label: str, ops: frozenset[str]) -> bool:
        """Return whether a source node became operators of other types only."""
        return label in self.made and not ops & operators(self.made[label])

    def describe(self, label: str) -> str:
        """Describe what a source node has become."""
        if label in self.made:
            return describe(self.made[label])
        merged = self.merged.get(label, [])
        working = [node for node in merged if node.op in query.CONVOLUTIONS] or merged
        return f"part of {describe(working)}" if working else "nothing"


def _row(
    legal: LegalModel, graph: _Graph, label: str, records: list[RewriteRecord]
) -> schema.RewriteRow | None:
    was, becomes = legal.source.forms[label], graph.describe(label)
    nodes = graph.made.get(label, [])
    before, after = legal.source.costs[label], cost(nodes)
    if _is_idle(before, after) and legal.source.ops[label] <= operators(nodes):
        return None  # moved, or given a Squeeze of a neighbour that has a row
    if was == becomes:
        own = [r for r in records if r.node == label]
        if not own and before == after:
            return None
        was, becomes = _with_details(own, was)
    return schema.RewriteRow(
        node=label,
        passes=tuple(dict.fromkeys(r.pass_name for r in records)),
        was=was,
        becomes=becomes,
        macs_before=before.macs,
        macs_after=after.macs,
        weight_bytes_before=before.weight_bytes,
        weight_bytes_after=after.weight_bytes,
        choices=tuple(choice(legal, r) for r in records if r.forms and r.node == label),
    )


def _is_idle(*costs: Cost) -> bool:
    return all(one.macs == 0 and not one.convolutions for one in costs)


def _with_details(records: list[RewriteRecord], text: str) -> tuple[str, str]:
    """Add what the first and last record say to descriptions that are the same otherwise."""
    if not records:
        return text, text
    return f"{text}, {records[0].before}", f"{text}, {records[-1].after}"


def choice(legal: LegalModel, record: RewriteRecord) -> schema.Choice:
    """Return the forms that a pass chose from."""
    alternatives = tuple(
        schema.Alternative(
            form=form.name,
            macs=form.cost.macs,
            weight_bytes=form.cost.weight_bytes,
            moved_bytes=form.moved_bytes,
            cost=form.total(legal.target),
            obstacle=form.obstacle,
            chosen=form.chosen,
        )
        for form in record.forms
    )
    return schema.Choice(pass_name=record.pass_name, alternatives=alternatives)
