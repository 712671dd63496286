"""Rows of the report on the float graph: rewrites and placement of each node, and traffic."""

from __future__ import annotations

from npuconv.amounts import total
from npuconv.legalize import keep_float
from npuconv.legalize.legal import LegalModel
from npuconv.legalize.log import RewriteRecord
from npuconv.legalize.registry import PASSES, Phase
from npuconv.legalize.source_model import by_label, describe, form_of, operators, tensors
from npuconv.model import Model, Node, query
from npuconv.partition import costs, crossings
from npuconv.partition.costs import cost
from npuconv.partition.crossings import Subgraph
from npuconv.records import replace
from npuconv.report.groups import group_by
from npuconv.schemas import report as schema


def node_rows(legal: LegalModel, subgraphs: list[Subgraph]) -> tuple[schema.NodeInfo, ...]:
    """Return a row for every node of the rewritten float graph."""
    model, plan = legal.model, legal.plan
    numbers = {id(node): k for k, part in enumerate(subgraphs, 1) for node in part.nodes}
    return tuple(
        schema.NodeInfo(
            name=model.label(node),
            op=query.qualified(node),
            placement=plan.placement[id(node)],
            reason=plan.reason[id(node)],
            macs=costs.macs(node),
            parameters=costs.parameters(node),
            subgraph=numbers.get(id(node)),
            form=form_of(node),
            inputs=tensors(node.inputs),
            outputs=tuple(tensor.name for tensor in node.outputs if tensor.name),
            shape=query.shape(node.outputs[0]) if node.outputs else None,
            source=node_source(model, model.label(node)),
        )
        for node in model.nodes()
    )


def node_source(model: Model, label: str, *, located: bool = False) -> schema.NodeSource | None:
    """Return the training code of a source node, with all frames or the ``located`` frames."""
    source = model.sources.get(label)
    if source is None:
        return None
    frames = (frame for frame in source.frames if frame.path or not located)
    return schema.NodeSource.from_attributes(
        source,
        frame=source.frame and schema.CodeFrame(**source.frame._asdict()),
        frames=tuple(schema.CodeFrame(**frame._asdict()) for frame in frames),
    )


def device_row(
    legal: LegalModel, nodes: tuple[schema.NodeInfo, ...], subgraphs: list[Subgraph]
) -> schema.Device:
    """Return subgraphs and traffic of the device, and its share of the multiplications."""
    model, source = legal.model, legal.source
    crossing = crossings.crossings(model, legal.plan)
    nodes_of = group_by(nodes, lambda node: node.subgraph)
    return schema.Device(
        macs_before=schema.MacShare(
            device=total(
                c.macs for label, c in source.costs.items() if label in source.supported_convs
            ),
            total=total(cost.macs for cost in source.costs.values()),
        ),
        macs_after=schema.MacShare(
            device=total(node.macs for node in nodes if node.placement == "device"),
            total=total(node.macs for node in nodes),
        ),
        to_device=_traffic(crossing.to_device),
        to_host=_traffic(crossing.to_host),
        subgraphs=tuple(
            schema.DeviceSubgraph.from_attributes(
                subgraph,
                number=number,
                nodes=len(subgraph.nodes),
                first=model.label(subgraph.nodes[0]),
                last=model.label(subgraph.nodes[-1]),
                macs=total(node.macs for node in nodes_of.get(number, ())),
            )
            for number, subgraph in enumerate(subgraphs, 1)
        ),
        kept_float=_kept_float(legal) if legal.device.keep_float else None,
    )


def _traffic(ports: tuple[schema.SubgraphTensor, ...]) -> schema.Traffic:
    return schema.Traffic(tensors=len(ports), bytes=total(port.bytes for port in ports))


def _kept_float(legal: LegalModel) -> schema.KeptFloat:
    """Compare with the plan in which no node is kept float."""
    patterns = legal.device.keep_float  # pattern by node
    device = replace(legal.device, keep_float={})
    free = replace(legal, device=device, operators=None).make_plan()
    crossing = crossings.crossings(legal.model, free)
    pattern_of = keep_float.names(legal.model, patterns)
    rows = []
    for pattern in dict.fromkeys(patterns.values()):
        macs = [
            costs.macs(node) for node in free.convolutions if pattern_of.get(node.name) == pattern
        ]
        nodes = sum(kept_by == pattern for kept_by in patterns.values())
        rows.append(schema.FloatPattern(pattern=pattern, nodes=nodes, macs=total(macs)))
    return schema.KeptFloat(
        patterns=tuple(rows),
        transitions_without=len(crossing.ports),
        bytes_without=crossing.bytes,
    )


def rewritten_rows(legal: LegalModel) -> tuple[schema.RewriteRow, ...]:
    """Return a row for every source node that becomes something else."""
    source, nodes = legal.source, by_label(legal.model.labelled())
    merged: dict[str, list[Node]] = {}  # nodes into which a source node was merged
    for node in legal.model.nodes():
        for label in legal.model.origin(node)[1:]:
            merged.setdefault(label, []).append(node)
    records: dict[str, list[RewriteRecord]] = {label: [] for label in source.forms}
    for record in legal.log.rewrites:
        rewrite = PASSES.get(record.pass_name)
        is_for_target = rewrite is not None and rewrite.phase in (Phase.LEGALIZE, Phase.SPLIT)
        for label in record.origin:  # rewrites of names, defaults and constants have no row
            ops = source.ops.get(label, frozenset())
            is_replaced = label in nodes and not ops & operators(nodes[label])
            if label in records and (is_replaced or is_for_target):
                records[label].append(record)
    rows = (
        _row(legal, label, listed, nodes.get(label, []), merged.get(label, []))
        for label, listed in records.items()
        if listed and label in source.costs
    )
    return tuple(row for row in rows if row is not None)


def _row(
    legal: LegalModel,
    label: str,
    records: list[RewriteRecord],
    nodes: list[Node],
    merged: list[Node],
) -> schema.RewriteRow | None:
    """Return the row of a source node; None if it is as before, or only moved.

    ``nodes`` replace it; ``merged`` are nodes into which it was merged.
    """
    was, becomes = legal.source.forms[label], describe(nodes)
    if not nodes:
        working = [node for node in merged if node.op in query.CONVOLUTIONS] or merged
        becomes = f"part of {describe(working)}" if working else "nothing"
    before, after = legal.source.costs[label], cost(nodes)
    is_idle = all(costs.macs == 0 and not costs.convolutions for costs in (before, after))
    if is_idle and legal.source.ops[label] <= operators(nodes):
        return None  # moved, or given a Squeeze of a neighbour that has a row
    of_node = [record for record in records if record.node == label]
    if was == becomes and not of_node and before == after:
        return None
    if was == becomes and of_node:
        was, becomes = f"{was}, {of_node[0].before}", f"{was}, {of_node[-1].after}"
    return schema.RewriteRow(
        node=label,
        passes=tuple(dict.fromkeys(record.pass_name for record in records)),
        was=was,
        becomes=becomes,
        macs_before=before.macs,
        macs_after=after.macs,
        weight_bytes_before=before.weight_bytes,
        weight_bytes_after=after.weight_bytes,
        choices=tuple(
            schema.FormChoice(
                pass_name=record.pass_name,
                alternatives=tuple(
                    schema.Alternative.from_attributes(
                        form.cost,
                        form=form.name,
                        cost=form.total(legal.target),
                        obstacle=form.obstacle,
                        chosen=form.is_chosen,
                    )
                    for form in record.forms
                ),
            )
            for record in of_node
            if record.forms
        ),
    )
