"""What the device does, for the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv import plan as planning
from npuconv.pipeline import kept, planned
from npuconv.report import schema

if TYPE_CHECKING:
    from npuconv.pipeline.legalize import Legalized


def device(work: Legalized, found: list[planning.Subgraph]) -> schema.Device:
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
