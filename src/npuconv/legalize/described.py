"""Placement and cost of every node, and the traffic between host and device, for the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv import partition as planning
from npuconv.legalize import kept, planned
from npuconv.model import query
from npuconv.schemas import report as schema

if TYPE_CHECKING:
    from npuconv.legalize.legal import Legalized
    from npuconv.model.types import Node, Tensor


def describe(work: Legalized) -> None:
    """Note placement and costs of the float graph, before quantization changes its nodes."""
    found = planning.subgraphs(work.model, work.plan)
    number = {id(node): at for at, one in enumerate(found, 1) for node in one.nodes}
    work.nodes = tuple(_node(work, n, number.get(id(n))) for n in work.model.nodes())
    work.device = _device(work, found)


def _device(work: Legalized, found: list[planning.Subgraph]) -> schema.Device:
    """The subgraphs of the device, what crosses, and how much of the work it does."""
    here = [node.macs for node in work.nodes if node.placement == "device"]
    total = planned.add(node.macs for node in work.nodes)
    crossing = planning.crossings(work.model, work.plan)
    members: dict[int | None, list[int | None]] = {}
    for node in work.nodes:
        members.setdefault(node.subgraph, []).append(node.macs)
    return schema.Device(
        macs_before=planned.macs_before(work),
        macs_after=schema.MacShare(device=planned.add(here), total=total),
        to_device=_traffic(crossing.to_device),
        to_host=_traffic(crossing.to_host),
        subgraphs=tuple(
            _subgraph(work, at, one, planned.add(members[at])) for at, one in enumerate(found, 1)
        ),
        kept_float=kept.costs(work),
    )


def _traffic(ports: tuple[planning.Port, ...]) -> schema.Traffic:
    return schema.Traffic(tensors=len(ports), bytes=planning.bytes_of(ports))


def _subgraph(
    work: Legalized, number: int, found: planning.Subgraph, macs: int | None
) -> schema.Subgraph:
    return schema.Subgraph(
        number=number,
        nodes=len(found.nodes),
        first=work.model.label(found.nodes[0]),
        last=work.model.label(found.nodes[-1]),
        macs=macs,
        inputs=_ports(found.inputs),
        outputs=_ports(found.outputs),
    )


def _ports(ports: tuple[planning.Port, ...]) -> tuple[schema.Port, ...]:
    return tuple(schema.Port(name=port.name, bytes=port.bytes) for port in ports)


def _node(work: Legalized, node: Node, subgraph: int | None) -> schema.NodeInfo:
    return schema.NodeInfo(
        name=work.model.label(node),
        op=query.qualified(node),
        placement=work.plan.placement[id(node)],
        reason=work.plan.reason[id(node)],
        macs=planning.macs(node),
        parameters=planning.parameters(node),
        subgraph=subgraph,
        form=planned.form_of(node),
        inputs=tuple(t.name for t in node.inputs if t.name and not query.is_constant(t)),
        outputs=tuple(t.name for t in node.outputs if t.name),
        shape=query.shape(node.outputs[0]) if node.outputs else None,
    )


def tensor_spec(tensor: Tensor) -> schema.TensorSpec:
    """Name, type and shape of a tensor as the report shows them."""
    dtype = query.dtype_name(tensor)
    return schema.TensorSpec(name=tensor.name, dtype=dtype, shape=query.shape(tensor))
