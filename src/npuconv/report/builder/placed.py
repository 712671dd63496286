"""Rows of the report on the float graph: what became of each node, where it runs, traffic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from npuconv import partition
from npuconv.legalize import keep_float
from npuconv.legalize.source import form_of, tensors
from npuconv.model import query
from npuconv.model.types import Node
from npuconv.report.builder.rewritten import rewritten_rows
from npuconv.report.words import total
from npuconv.schemas import report as schema

if TYPE_CHECKING:
    from npuconv.legalize.legal import LegalModel


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
    found = partition.subgraphs(legal.model, legal.plan)
    number = {id(node): at for at, one in enumerate(found, 1) for node in one.nodes}
    nodes = tuple(_node(legal, n, number.get(id(n))) for n in legal.model.nodes())
    rewritten = rewritten_rows(legal) if before is None else before.rewritten
    return GraphRows(rewritten, nodes, _device(legal, nodes, found))


def _device(
    legal: LegalModel,
    nodes: tuple[schema.NodeInfo, ...],
    found: list[partition.Subgraph],
) -> schema.Device:
    on_device = total(node.macs for node in nodes if node.placement == "device")
    crossing = partition.crossings(legal.model, legal.plan)
    macs: dict[int | None, list[int | None]] = {}
    for node in nodes:
        macs.setdefault(node.subgraph, []).append(node.macs)
    return schema.Device(
        macs_before=_macs_before(legal),
        macs_after=schema.MacShare(device=on_device, total=total(node.macs for node in nodes)),
        to_device=_traffic(crossing.to_device),
        to_host=_traffic(crossing.to_host),
        subgraphs=tuple(
            schema.Subgraph(
                number=number,
                nodes=len(one.nodes),
                first=legal.model.label(one.nodes[0]),
                last=legal.model.label(one.nodes[-1]),
                macs=total(macs[number]),
                inputs=_ports(one.inputs),
                outputs=_ports(one.outputs),
            )
            for number, one in enumerate(found, 1)
        ),
        kept_float=_kept_float(legal),
    )


def _macs_before(legal: LegalModel) -> schema.MacShare:
    """Return multiply-accumulates on the device, before anything was done for it."""
    costs, taken = legal.source.costs, legal.source.taken
    device = [one.macs for label, one in costs.items() if label in taken]
    return schema.MacShare(device=total(device), total=total(one.macs for one in costs.values()))


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
    if not legal.kept:
        return None
    free = partition.make_plan(legal.model, legal.target, legal.blocked, form=legal.options.format)
    crossing = partition.crossings(legal.model, free)
    kept = keep_float.names(legal.model, legal.kept)
    moved = [(kept[node.name], partition.macs(node)) for node in free.device if node.name in kept]
    return schema.KeptFloat(
        patterns=tuple(_patterns(legal, moved)),
        transitions_without=partition.transitions(legal.model, free),
        bytes_without=partition.bytes_of((*crossing.to_device, *crossing.to_host)),
    )


def _patterns(legal: LegalModel, moved: list[tuple[str, int | None]]) -> Iterator[schema.Kept]:
    for pattern in dict.fromkeys(legal.kept.values()):
        macs = [count for by, count in moved if by == pattern]
        nodes = sum(by == pattern for by in legal.kept.values())
        yield schema.Kept(pattern=pattern, nodes=nodes, macs=total(macs))
