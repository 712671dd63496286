"""Tensors that cross between device and host, and the subgraphs they separate.

Every tensor that crosses is int8: the host quantizes the inputs of the device, and gets back
the int8 results. Device nodes that follow each other form one subgraph, unless something between
them runs on the host: then the device must stop, hand over, and be started again. So no path
leaves a subgraph and comes back to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from npuconv.amounts import total
from npuconv.model import Model, Node, Tensor, query
from npuconv.model.core import with_inner
from npuconv.partition.costs import size
from npuconv.partition.placement import DisjointSets, Plan
from npuconv.records import dataclass
from npuconv.schemas.report import SubgraphTensor

if TYPE_CHECKING:
    from npuconv.target import Target


@dataclass(frozen=True)
class Crossings:
    """The tensors that cross in one inference, each once for each direction."""

    to_device: tuple[SubgraphTensor, ...]
    to_host: tuple[SubgraphTensor, ...]

    @property
    def ports(self) -> tuple[SubgraphTensor, ...]:
        """All of them: a tensor that crosses in both directions counts twice."""
        return (*self.to_device, *self.to_host)

    @property
    def bytes(self) -> int | None:
        """Bytes in one inference; None if the bytes of a tensor are unknown."""
        return total(port.bytes for port in self.ports)


@dataclass(frozen=True)
class Detours:
    """Tensors that cross because the host computes between two nodes of the device."""

    tensors: int  # number of tensors, each once for each direction
    bytes: int | None  # bytes in one inference; None if the bytes of a tensor are unknown
    causes: tuple[Node, ...]  # nodes of the host that read or make the tensors


@dataclass(frozen=True)
class Subgraph:
    """Nodes that run on the device without the host in between."""

    nodes: tuple[Node, ...]
    inputs: tuple[SubgraphTensor, ...]
    outputs: tuple[SubgraphTensor, ...]


def crossings(model: Model, plan: Plan) -> Crossings:
    """Return the tensors that cross to the device, and the tensors that cross to the host."""
    nodes = [node for node in model.nodes() if plan.placement[id(node)] == "device"]
    return Crossings(*ports(model, nodes))


def price(model: Model, plan: Plan, target: Target) -> float:
    """Return the price of all crossings; a tensor of unknown extents counts as one byte."""
    ports, costs = crossings(model, plan).ports, target.costs
    return sum(costs.crossing + costs.crossing_byte * (port.bytes or 1) for port in ports)


def detours(model: Model, plan: Plan) -> Detours:
    """Return the tensors that cross between the first and the last nodes of the device."""
    nodes = model.nodes()
    makers = {id(node): [id(maker) for maker in _makers(node)] for node in nodes}
    device = {id(node) for node in nodes if plan.placement[id(node)] == "device"}
    downstream, ahead = set[int](), set[int]()
    for node in nodes:
        if any(maker in device or maker in downstream for maker in makers[id(node)]):
            downstream.add(id(node))
    for node in reversed(nodes):
        if id(node) in device or id(node) in ahead:
            ahead.update(makers[id(node)])
    between = (downstream & ahead) - device
    to_device: dict[str, Tensor] = {}
    to_host: dict[str, Tensor] = {}
    causes = []
    for node in (node for node in nodes if id(node) in between):
        inputs = {t.name: t for t in node.inputs if t.inputs and id(t.inputs[0]) in device}
        outputs = {t.name: t for t in node.outputs if any(id(n) in device for n in t.outputs)}
        causes += [node] if inputs or outputs else []
        to_host |= inputs
        to_device |= outputs
    crossing = [_port(t) for t in (*to_device.values(), *to_host.values())]
    return Detours(len(crossing), total(port.bytes for port in crossing), tuple(causes))


def ports(
    model: Model, nodes: Iterable[Node]
) -> tuple[tuple[SubgraphTensor, ...], tuple[SubgraphTensor, ...]]:
    """Return the inputs of these nodes from outside, and their outputs that are read outside."""
    members = list(nodes)
    inside = {id(node) for node in members}
    outputs = {id(tensor) for tensor in model.graph.outputs}
    inputs: dict[str, SubgraphTensor] = {}
    outputs_of_nodes: dict[str, SubgraphTensor] = {}
    for node in members:
        for tensor in node.inputs:
            maker = query.producer(tensor)
            if maker is not None and id(maker) in inside:
                continue
            if tensor.name and not query.is_constant(tensor):
                inputs.setdefault(tensor.name, _port(tensor))
        for tensor in node.outputs:
            # Consumers in branches of an If are not listed at the top level.
            if id(tensor) in outputs or any(id(n) not in inside for n in tensor.outputs):
                outputs_of_nodes.setdefault(tensor.name, _port(tensor))
    return tuple(inputs.values()), tuple(outputs_of_nodes.values())


def _port(tensor: Tensor) -> SubgraphTensor:
    return SubgraphTensor(name=tensor.name, bytes=int8_bytes(tensor))


def readers(plan: Plan, ops: Collection[str] = ()) -> dict[str, list[Node]]:
    """Return the convolutions of the device by the name of their input.

    If operators of ``ops`` cut this input from another tensor, by the name of that tensor.
    """
    convs: dict[str, list[Node]] = {}
    for conv in plan.convolutions:
        convs.setdefault(plan.uncut(conv.inputs[0], ops).name, []).append(conv)
    return convs


def int8_bytes(tensor: Tensor) -> int | None:
    """Return the bytes of a tensor in int8; None where a dimension is not known."""
    dims = query.shape(tensor)
    return None if dims is None else size(dims)


def subgraphs(model: Model, plan: Plan) -> list[Subgraph]:
    """Return the subgraphs of the device, by their first nodes."""
    makers = {id(node): _makers(node) for node in model.nodes()}
    starts = _starts(model, plan, makers)
    sets = DisjointSets[int]()
    members: dict[int, list[Node]] = {}
    inside = [node for node in model.nodes() if plan.placement[id(node)] == "device"]
    for node in inside:
        key = id(node)
        sets.join(key, *(m for m in map(id, makers[key]) if m in sets and starts[m] == starts[key]))
    for node in inside:
        members.setdefault(sets.find(id(node)), []).append(node)
    return [Subgraph(tuple(nodes), *ports(model, nodes)) for nodes in members.values()]


def _starts(model: Model, plan: Plan, makers: dict[int, list[Node]]) -> dict[int, int]:
    """Return how often the device must have been started before each node can run."""
    starts: dict[int, int] = {}
    for node in model.nodes():
        runs_on_device = plan.placement[id(node)] == "device"
        most = int(runs_on_device)
        for producer in makers[id(node)]:
            follows_device = plan.placement.get(id(producer)) == "device"
            starts_again = runs_on_device and not follows_device
            most = max(most, starts.get(id(producer), 0) + starts_again)
        starts[id(node)] = most
    return starts


def _makers(node: Node) -> list[Node]:
    """Return the producers of the tensors that a node and its branches read."""
    return [t.inputs[0] for inner in with_inner(node) for t in inner.inputs if t.inputs]
