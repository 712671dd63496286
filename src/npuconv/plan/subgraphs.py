"""Which nodes the device can run in one go.

Nodes of the device that follow each other form one subgraph, unless something between
them runs on the host: then the device must stop, hand over, and be started again. So no
path leaves a subgraph and comes back to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from npuconv.plan.crossings import Port, ports

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor
    from npuconv.plan.placement import Plan


@dataclass(frozen=True)
class Subgraph:
    """Nodes that run on the device without the host in between."""

    nodes: tuple[Node, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def subgraphs(model: Model, plan: Plan) -> list[Subgraph]:
    """The subgraphs of the device, by their first nodes."""
    members: dict[int, list[Node]] = {}
    leaders = _leaders(model, plan)
    for node in model.nodes():
        if id(node) in leaders:
            members.setdefault(_find(leaders, id(node)), []).append(node)
    return [Subgraph(tuple(nodes), *ports(model, nodes)) for nodes in members.values()]


def _leaders(model: Model, plan: Plan) -> dict[int, int]:
    """Disjoint sets of device nodes: each node's id with that of another of its set."""
    starts = _starts(model, plan)
    leaders: dict[int, int] = {}
    for node in model.nodes():
        if plan.placement[id(node)] != "device":
            continue
        leaders[id(node)] = id(node)
        for maker in _makers(node):
            if id(maker) in leaders and starts[id(maker)] == starts[id(node)]:
                leaders[_find(leaders, id(maker))] = _find(leaders, id(node))
    return leaders


def _starts(model: Model, plan: Plan) -> dict[int, int]:
    """How often the device must have been started before each node can run."""
    starts: dict[int, int] = {}
    for node in model.nodes():
        here = plan.placement[id(node)] == "device"
        starts[id(node)] = int(here)
        for maker in _makers(node):
            there = plan.placement.get(id(maker)) == "device"
            needed = starts.get(id(maker), 0) + (here and not there)
            starts[id(node)] = max(starts[id(node)], needed)
    return starts


def _makers(node: Node) -> list[Node]:
    return [tensor.inputs[0] for tensor in _read(node) if tensor.inputs]


def _read(node: Node) -> list[Tensor]:
    """What a node reads, by its branches too."""
    from npuconv.model.core import subgraphs as bodies

    read = list(node.inputs)
    for _, body in bodies(node):
        for inner in body.nodes:
            read += _read(inner)
    return read


def _find(leaders: dict[int, int], member: int) -> int:
    while leaders[member] != member:
        leaders[member] = leaders[leaders[member]]
        member = leaders[member]
    return member
