"""Subgraphs: nodes that the device can run without the host in between.

Nodes of the device that follow each other form one subgraph, unless something between
them runs on the host: then the device must stop, hand over, and be started again. So no
path leaves a subgraph and comes back to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from npuconv.partition.crossings import Port, ports

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node
    from npuconv.partition.placement import Plan


@dataclass(frozen=True)
class Subgraph:
    """Nodes that run on the device without the host in between."""

    nodes: tuple[Node, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]


def subgraphs(model: Model, plan: Plan) -> list[Subgraph]:
    """The subgraphs of the device, by their first nodes."""
    members: dict[int, list[Node]] = {}
    leaders = _leaders(model, plan, {id(node): _makers(node) for node in model.nodes()})
    for node in model.nodes():
        if id(node) in leaders:
            members.setdefault(_find(leaders, id(node)), []).append(node)
    return [Subgraph(tuple(nodes), *ports(model, nodes)) for nodes in members.values()]


def _leaders(model: Model, plan: Plan, makers: dict[int, list[Node]]) -> dict[int, int]:
    """Disjoint sets of device nodes: each node's id with that of another of its set."""
    starts = _starts(model, plan, makers)
    leaders: dict[int, int] = {}
    for node in model.nodes():
        if plan.placement[id(node)] != "device":
            continue
        leaders[id(node)] = id(node)
        for maker in makers[id(node)]:
            if id(maker) in leaders and starts[id(maker)] == starts[id(node)]:
                leaders[_find(leaders, id(maker))] = _find(leaders, id(node))
    return leaders


def _starts(model: Model, plan: Plan, makers: dict[int, list[Node]]) -> dict[int, int]:
    """Return how often the device must have been started before each node can run."""
    starts: dict[int, int] = {}
    for node in model.nodes():
        here = plan.placement[id(node)] == "device"
        most = int(here)
        for maker in makers[id(node)]:
            there = plan.placement.get(id(maker)) == "device"
            most = max(most, starts.get(id(maker), 0) + (here and not there))
        starts[id(node)] = most
    return starts


def _makers(node: Node) -> list[Node]:
    from npuconv.model.core import subgraphs as bodies

    found = [tensor.inputs[0] for tensor in node.inputs if tensor.inputs]
    for _, body in bodies(node):
        for inner in body.nodes:
            found += _makers(inner)  # what its branches read, too
    return found


def _find(leaders: dict[int, int], member: int) -> int:
    while leaders[member] != member:
        leaders[member] = leaders[leaders[member]]
        member = leaders[member]
    return member
