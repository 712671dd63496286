"""Removal of unused nodes, and topological order of the others."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from npuconv.model.core import Model, subgraphs
from npuconv.model.types import Graph, Node

_readers = attrgetter("outputs")


def sweep(model: Model) -> int:
    """Forget unused nodes and put the rest in topological order, stably.

    Returns:
        How many nodes went.
    """
    nodes = list(model.graph.nodes)
    dead = unused(model, nodes)
    detach(list(dead.values()))
    kept = [n for n in nodes if id(n) not in dead]
    model.settle(ordered(kept))
    return len(nodes) - len(kept)


def unused(model: Model, nodes: list[Node]) -> dict[int, Node]:
    """The nodes that make nothing that is read, except by others of the kind."""
    members = {id(n) for n in nodes}
    readers: dict[int, int] = {}  # of tensors that dead nodes read: how many are left
    dead: dict[int, Node] = {}
    doubtful = [n for n in nodes if not any(map(_readers, n.outputs))]
    while doubtful:
        node = doubtful.pop()
        if id(node) in dead or any(
            readers.get(id(t), len(t.outputs)) or model.is_output(t) for t in node.outputs
        ):
            continue
        dead[id(node)] = node
        for tensor in (t for one in with_inner(node) for t in one.inputs):
            readers[id(tensor)] = readers.get(id(tensor), len(tensor.outputs)) - 1
            doubtful.extend(maker for maker in tensor.inputs if id(maker) in members)
    return dead


def with_inner(node: Node) -> Iterator[Node]:
    """The node, and those of the graphs that it holds."""
    yield node
    for _, graph in subgraphs(node):
        for inner in graph.nodes:
            yield from with_inner(inner)


def detach(nodes: list[Node]) -> None:
    """Let these nodes read and make nothing; each list of readers is gone through once.

    What they hold in subgraphs goes with them, and reads nothing outside any more.
    """
    nodes = [one for node in nodes for one in with_inner(node)]
    gone = {id(n) for n in nodes}
    for tensor in {id(t): t for n in nodes for t in n.inputs}.values():
        left = [reader for reader in tensor.outputs if id(reader) not in gone]
        list.clear(tensor.outputs)
        list.extend(tensor.outputs, left)
    for node in nodes:
        list.clear(node.inputs)
        node.outputs.clear()


def ordered(nodes: list[Node]) -> list[Node]:
    """Depth first in the present order, so that nothing moves without need."""
    if _is_ordered(nodes):
        return nodes
    waiting = {id(n) for n in nodes}
    result: list[Node] = []
    for root in nodes:
        stack = [(root, iter(_dependencies(root)))] if id(root) in waiting else []
        waiting.discard(id(root))
        while stack:
            node, pending = stack[-1]
            for following in pending:
                if id(following) in waiting:
                    waiting.discard(id(following))
                    stack.append((following, iter(_dependencies(following))))
                    break
            else:
                result.append(node)
                stack.pop()
    return result


def _is_ordered(nodes: list[Node]) -> bool:
    later = {id(tensor) for node in nodes for tensor in node.outputs}
    for node in nodes:
        if not later.isdisjoint(map(id, node.inputs)):
            return False
        for _, graph in subgraphs(node):
            makers = _outer_dependencies(graph)
            if any(not later.isdisjoint(map(id, maker.outputs)) for maker in makers):
                return False
        later.difference_update(map(id, node.outputs))
    return True


def _dependencies(node: Node) -> list[Node]:
    found = [maker for tensor in node.inputs for maker in tensor.inputs]
    for _, graph in subgraphs(node):
        found.extend(_outer_dependencies(graph))
    return found


def _outer_dependencies(graph: Graph) -> Iterator[Node]:
    for tensor in graph.outputs:
        yield from tensor.inputs
    for node in graph.nodes:
        yield from _dependencies(node)
