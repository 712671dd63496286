"""Regions of the device: its operators, chosen for the lowest price of crossings.

Weighed alone, a chain of operators between two of the host crosses less with every operator that
leaves it, and an operator whose neighbours would follow it does not go. All together they are a
minimum cut of the graph between device and host: the least sum of the prices of crossing tensors,
over all sets of operators (H. S. Stone, "Multiprocessor Scheduling with the Aid of Network Flow
Algorithms", IEEE TSE 1977).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from npuconv.model import Model, Node, query
from npuconv.ops.operator import data_inputs
from npuconv.partition.costs import size
from npuconv.partition.operators import CUTTING, passes_int8, takes_as
from npuconv.records import dataclass, field

if TYPE_CHECKING:
    from npuconv.target import Target

DEVICE, HOST = 0, 1
_NEVER = 2**200  # cost of an edge that no cut may contain: more than all crossings of a model


@dataclass
class Cut:
    """A directed graph whose vertices are divided between device and host.

    Attributes:
        heads: end vertex of every edge; edge ``k ^ 1`` is the reverse edge.
        room: residual capacity of every edge.
        leaving: edges that leave each vertex.
    """

    heads: list[int] = field(default_factory=list)
    room: list[int] = field(default_factory=list)
    leaving: list[list[int]] = field(default_factory=lambda: [[], []])

    def vertex(self) -> int:
        """Add a vertex; the first two are the device and the host."""
        self.leaving.append([])
        return len(self.leaving) - 1

    def edge(self, start: int, end: int, cost: int = _NEVER) -> None:
        """Add an edge: its cost counts if ``start`` is on the device and ``end`` on the host."""
        if start in (end, HOST) or end == DEVICE:
            return
        for tail, head, room in ((start, end, cost), (end, start, 0)):
            self.leaving[tail].append(len(self.heads))
            self.heads.append(head)
            self.room.append(room)

    def device(self) -> set[int]:
        """Return the vertices on the side of the device: the smallest set of the lowest cost.

        Largest flow by shortest paths, all of one length at once (E. A. Dinic, 1970).
        """
        while True:
            levels = self._levels()
            if HOST not in levels:
                return set(levels)
            untried = [list(edges) for edges in self.leaving]
            while path := self._path(levels, untried):
                least = min(self.room[edge] for edge in path)
                for edge in path:
                    self.room[edge] -= least
                    self.room[edge ^ 1] += least

    def _levels(self) -> dict[int, int]:
        """Return the distance from the device of every vertex that more flow can reach."""
        levels, reached = {DEVICE: 0}, [DEVICE]
        for vertex in reached:
            for edge in self.leaving[vertex]:
                if self.room[edge] and self.heads[edge] not in levels:
                    levels[self.heads[edge]] = levels[vertex] + 1
                    reached.append(self.heads[edge])
        return levels

    def _path(self, levels: dict[int, int], untried: list[list[int]]) -> list[int]:
        """Return the edges of a shortest path to the host; none if no such path is left."""
        path: list[int] = []
        vertex = DEVICE
        while vertex != HOST:
            if not untried[vertex]:
                if not path:
                    return []
                vertex = self.heads[path.pop() ^ 1]
                untried[vertex].pop()
                continue
            edge = untried[vertex][-1]
            if self.room[edge] and levels.get(self.heads[edge]) == levels[vertex] + 1:
                path.append(edge)
                vertex = self.heads[edge]
            else:
                untried[vertex].pop()
        return path


def nodes_on_device(  # noqa: PLR0913 - a placement depends on that much
    model: Model,
    target: Target,
    anyway: Collection[int],
    candidates: Iterable[Node],
    off: Collection[str],
    keep_float: Collection[str],
    *,
    absorbed: Collection[str] = (),
    chooses_moves: bool = True,
) -> set[int]:
    """Return the ids of all nodes on the device; their crossings have the lowest price.

    The costs of the target price a crossing. Among equal prices the device moves
    integers, and a crossing is as late as possible, but before the last operator of an output: the
    host computes it, which saves a rounding.

    Args:
        model: a legalized model.
        target: the device.
        anyway: ids of the convolutions and operators that run there in any case.
        candidates: operators that it could compute.
        off: names of nodes that stay on the host, even if they pass integers on.
        keep_float: names of nodes among these that pass no integers on.
        absorbed: names of activations that int8 saturation or a Relu replaces on the device.
        chooses_moves: whether operators that only move integers, such as Reshape, may stay on the
            host although the device would run them.
    """
    cut, listed_ids = Cut(), {id(node) for node in candidates}
    places: dict[int, int] = {}
    int8: dict[int, int] = {}  # vertex that decides whether a tensor is int8, by its id
    moves: list[tuple[int, int]] = []  # free moves: vertex of the result, of the node
    for node in model.nodes():
        if id(node) in anyway:
            makes = places[id(node)] = DEVICE
        elif id(node) in listed_ids:
            makes = places[id(node)] = cut.vertex()
        elif node.name not in keep_float and passes_int8(node, int8):
            sources = [int8[id(t)] for t in data_inputs(node)]
            makes = sources[0] if len(set(sources)) == 1 else cut.vertex()
            for source in sources:  # int8 if all sources are
                cut.edge(makes, source)
            producer = query.producer(node.inputs[0])
            after_conv = producer is not None and producer.op == "Conv" and id(producer) in anyway
            is_alone = query.sole_consumer(model, node.inputs[0]) is not None
            is_fused = after_conv and is_alone and node.op in CUTTING
            is_taken = takes_as(node.op, node, target, after_conv=after_conv)
            if node.name in off or not (is_taken or node.name in absorbed):
                places[id(node)] = HOST
            elif is_fused or not chooses_moves or not is_taken:
                places[id(node)] = makes
            else:
                place = places[id(node)] = cut.vertex()
                cut.edge(place, makes)  # the device reads int8 only
                moves.append((makes, place))
        else:
            continue
        int8.update((id(t), makes) for t in node.outputs)
    _add_crossings(model, cut, places, moves, target)
    device = cut.device()
    return {key for key, vertex in places.items() if vertex in device}


def _add_crossings(
    model: Model, cut: Cut, places: dict[int, int], moves: Iterable[tuple[int, int]], target: Target
) -> None:
    """Add the price of every tensor that crosses, once for each direction."""
    nodes = model.nodes()
    results = [(t, places.get(id(n), HOST)) for n in nodes for t in n.outputs]
    tensors = [*((t, HOST) for t in model.graph.inputs), *results]
    preference = 3 * len(tensors)  # cost of a move on the host: more than one ``late``
    unit = (preference + 2 * len(tensors)) * len(tensors) + 1  # more than all preferences
    for int8, place in moves:
        cut.edge(int8, place, preference)
    for number, (tensor, maker) in enumerate(tensors):
        is_output = model.is_output(tensor)
        readers = {places.get(id(node), HOST) for node in query.consumers(tensor)}
        readers |= {HOST} if is_output else set()
        if readers <= {maker}:
            continue
        late = len(tensors) * (2 if is_output else 1) - number
        dims = query.shape(tensor)
        size_in_bytes = (size(dims) if dims is not None else None) or 1  # 1 if an extent is open
        price = round(target.costs.crossing + target.costs.crossing_byte * size_in_bytes)
        cost = max(price, 1) * unit + late
        before, after = cut.vertex(), cut.vertex()
        cut.edge(before, maker, cost)
        cut.edge(maker, after, cost)
        for reader in sorted(readers):
            cut.edge(reader, before)
            cut.edge(after, reader)
