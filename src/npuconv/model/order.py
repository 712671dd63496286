"""Which nodes are used, and in which order they stand."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from npuconv.model.core import Model, subgraphs
from npuconv.model.types import Graph, Node


def unused(model: Model, nodes: list[Node]) -> dict[int, Node]:
    """The nodes that make nothing that is read, except by others of the kind."""
    members = {id(n) for n in nodes}
    readers: dict[int, int] = {}  # of tensors that dead nodes read: how many are left
    dead: dict[int, Node] = {}
    doubtful = list(nodes)
    while doubtful:
        node = doubtful.pop()
        if id(node) in dead or any(
            readers.get(id(t), len(t.outputs)) or model.is_output(t) for t in node.outputs
        ):
            continue
        dead[id(node)] = node
        for tensor in node.inputs:
            readers[id(tensor)] = readers.get(id(tensor), len(tensor.outputs)) - 1
            doubtful.extend(maker for maker in tensor.inputs if id(maker) in members)
    return dead


def ordered(nodes: list[Node]) -> list[Node]:
    """Depth first in the present order, so that nothing moves without need."""
    if _is_ordered(nodes):
        return nodes
    members = {id(n) for n in nodes}
    done: set[int] = set()
    result: list[Node] = []
    for root in nodes:
        stack = [(root, _dependencies(root))] if id(root) not in done else []
        done.add(id(root))
        while stack:
            node, pending = stack[-1]
            following = next((d for d in pending if id(d) in members and id(d) not in done), None)
            if following is None:
                result.append(node)
                stack.pop()
            else:
                done.add(id(following))
                stack.append((following, _dependencies(following)))
    return result


def _is_ordered(nodes: list[Node]) -> bool:
    missing = {id(n) for n in nodes}
    for node in nodes:
        missing.discard(id(node))
        for maker in _dependencies(node):
            if id(maker) in missing:
                return False
    return True


def _dependencies(node: Node) -> Iterator[Node]:
    found = [maker for tensor in node.inputs for maker in tensor.inputs]
    inner = subgraphs(node)
    return (
        chain(found, *(_outer_dependencies(graph) for _, graph in inner)) if inner else iter(found)
    )


def _outer_dependencies(graph: Graph) -> Iterator[Node]:
    for tensor in graph.outputs:
        yield from tensor.inputs
    for node in graph.nodes:
        yield from _dependencies(node)
