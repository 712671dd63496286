"""Rows of the report on the float graph: what became of each node, where it runs, traffic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from npuconv import partition
from npuconv.legalize import keep_float
from npuconv.legalize.legal import LegalModel
from npuconv.legalize.log import RewriteRecord
from npuconv.legalize.registry import PASSES, Phase
from npuconv.legalize.source import by_label, describe, form_of, operators, tensors
from npuconv.model import query
from npuconv.model.core import Model
from npuconv.model.types import Node
from npuconv.partition import Cost, cost
from npuconv.report.words import total
from npuconv.schemas import report as schema


@dataclass(frozen=True)
class GraphRows:
    """Rows of a legal float graph."""

    rewritten: tuple[schema.RewriteRow, ...]  # one for each source node that became something else
    nodes: tuple[schema.NodeInfo, ...]  # one for each node
    device: schema.Device  # subgraphs, traffic, and share of the multiplications


def graph_rows(legal: LegalModel, before: GraphRows | None = None) -> GraphRows:
    """Describe the float graph, before quantization changes its nodes.

    ``before`` are rows of the graph before steps for accuracy changed it.
    """
    subgraphs = partition.subgraphs(legal.model, legal.plan)
    number = {id(node): at for at, one in enumerate(subgraphs, 1) for node in one.nodes}
    nodes = tuple(_node(legal, n, number.get(id(n))) for n in legal.model.nodes())
    rewritten = rewritten_rows(legal) if before is None else before.rewritten
    on_device = total(node.macs for node in nodes if node.placement == "device")
    crossing = partition.crossings(legal.model, legal.plan)
    macs: dict[int | None, list[int | None]] = {}
    for node in nodes:
        macs.setdefault(node.subgraph, []).append(node.macs)
    costs, taken = legal.source.costs, legal.source.taken
    device = schema.Device(
        macs_before=schema.MacShare(
            device=total(cost.macs for label, cost in costs.items() if label in taken),
            total=total(cost.macs for cost in costs.values()),
        ),
        macs_after=schema.MacShare(device=on_device, total=total(node.macs for node in nodes)),
        to_device=_traffic(crossing.to_device),
        to_host=_traffic(crossing.to_host),
        subgraphs=tuple(
            schema.Subgraph(
                number=at,
                nodes=len(subgraph.nodes),
                first=legal.model.label(subgraph.nodes[0]),
                last=legal.model.label(subgraph.nodes[-1]),
                macs=total(macs[at]),
                inputs=_ports(subgraph.inputs),
                outputs=_ports(subgraph.outputs),
            )
            for at, subgraph in enumerate(subgraphs, 1)
        ),
        kept_float=_kept_float(legal),
    )
    return GraphRows(rewritten, nodes, device)


def _traffic(ports: tuple[partition.Port, ...]) -> schema.Traffic:
    return schema.Traffic(tensors=len(ports), bytes=partition.bytes_of(ports))


def _ports(ports: tuple[partition.Port, ...]) -> tuple[schema.Port, ...]:
    return tuple(schema.Port(name=port.name, bytes=port.bytes) for port in ports)


def _node(legal: LegalModel, node: Node, subgraph: int | None) -> schema.NodeInfo:
    return schema.NodeInfo(
        name=legal.model.label(node),
        op=query.qualified(node),
        placement=legal.plan.placement[id(node)],
        reason=legal.plan.reason[id(node)],
        macs=partition.macs(node),
        parameters=partition.parameters(node),
        subgraph=subgraph,
        form=form_of(node),
        inputs=tensors(node.inputs),
        outputs=tuple(t.name for t in node.outputs if t.name),
        shape=query.shape(node.outputs[0]) if node.outputs else None,
    )


def _kept_float(legal: LegalModel) -> schema.KeptFloat | None:
    """Return the cost of nodes that the user keeps float; None if there are none."""
    if not legal.device.keep_float:
        return None
    device = replace(legal.device, keep_float={})
    free = replace(legal, device=device, operators=None).make_plan()
    crossing = partition.crossings(legal.model, free)
    kept = keep_float.names(legal.model, legal.device.keep_float)
    moved = [(kept[node.name], partition.macs(node)) for node in free.device if node.name in kept]
    return schema.KeptFloat(
        patterns=tuple(_patterns(legal, moved)),
        transitions_without=partition.transitions(legal.model, free),
        bytes_without=partition.bytes_of((*crossing.to_device, *crossing.to_host)),
    )


def _patterns(legal: LegalModel, moved: list[tuple[str, int | None]]) -> Iterator[schema.Kept]:
    for pattern in dict.fromkeys(legal.device.keep_float.values()):
        macs = [count for by, count in moved if by == pattern]
        nodes = sum(by == pattern for by in legal.device.keep_float.values())
        yield schema.Kept(pattern=pattern, nodes=nodes, macs=total(macs))


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
    for record in legal.log.rewrites:
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
        """Describe the nodes that replace a source node."""
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
    """Add the details of the first and last record to descriptions that are the same otherwise."""
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
