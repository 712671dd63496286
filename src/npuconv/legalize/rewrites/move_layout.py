"""Move Transposes, Squeezes and Unsqueezes past operators to others that undo them.

Elementwise operators, Concat, Pad, Split, BatchNormalization and the like between a Transpose and
its inverse, or a Squeeze and an Unsqueeze, compute on the original tensor, with their constants
and axes in its order. A node is inserted at every edge to other nodes, and nothing is
done unless the number of nodes decreases. Nodes that then stand in a row are composed, as in
``compose-layout``; beside a node that the target takes, one node more is allowed if the target
then refuses fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator

from npuconv.legalize.region import trace
from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.legalize.tools.compose import OPS, compose
from npuconv.legalize.tools.layout import AxisMap, data_inputs, is_movable, move, variables
from npuconv.model import Model, Node, Tensor, edit, query

Following = Callable[[Node], Iterable[Node]]


@register_pass(Phase.LEGALIZE, after=("rewrite-1d-as-2d",), infers=True)
def move_layout(model: Model, device: TargetDevice, log: Log) -> int:
    total = 0
    while True:
        fired = compose(model, device, log)
        for order, nodes in list(_pieces(model)):
            piece = _Piece(model, order, nodes)
            if piece.saves_nodes():
                piece.move(log)
                fired += 1
        if not fired:
            return total + compose(model, device, log, spare=1)
        total += fired


def _pieces(model: Model) -> Iterator[tuple[AxisMap, list[Node]]]:
    """Yield connected nodes between nodes that undo each other, and the order to move them to."""
    areas: dict[AxisMap, set[int]] = {}
    for node in model.nodes(*OPS):
        order = AxisMap.from_node(node)
        if order is None or order.is_identity:
            continue
        order = order.inverse
        area_ids = areas.setdefault(order, set())
        starts = [n for n in query.consumers(node.outputs[0]) if id(n) not in area_ids]
        area = _movable_area(model, starts, order)
        area_ids |= set(area)
        yield from ((order, nodes) for nodes in _between(area, order))


def _movable_area(model: Model, starts: Iterable[Node], order: AxisMap) -> dict[int, Node]:
    """Return the movable nodes among these, and all that are connected to them."""
    area: dict[int, Node] = {}
    stack = list(starts)
    while stack:
        node = stack.pop()
        if id(node) not in area and model.is_top_level(node) and is_movable(node, order):
            area[id(node)] = node
            stack += _producers(node) + _consumers(node)
    return area


def _producers(node: Node) -> list[Node]:
    return [producer for t in variables(node) if (producer := query.producer(t)) is not None]


def _consumers(node: Node) -> list[Node]:
    return [consumer for tensor in node.outputs for consumer in query.consumers(tensor)]


def _between(area: dict[int, Node], order: AxisMap) -> Iterator[list[Node]]:
    """Yield the nodes between a node and its inverse, in connected pieces."""
    nodes = list(area.values())
    first = [n for n in nodes if any(_undone_producer(t, order) for t in variables(n))]
    last = [n for n in nodes if any(AxisMap.from_node(c) == order for c in _consumers(n))]
    after = _reachable(first, _consumers, area)
    before = _reachable(last, _producers, area)
    remaining = {key: n for key, n in area.items() if key in after and key in before}
    while remaining:
        start = next(iter(remaining.values()))
        connected = _reachable([start], lambda n: _producers(n) + _consumers(n), remaining)
        yield [n for key, n in remaining.items() if key in connected]
        remaining = {key: n for key, n in remaining.items() if key not in connected}


def _reachable(
    starts: Iterable[Node], following: Following, inside: Container[int]
) -> dict[int, Node]:
    """Return the nodes that follow from others, directly or not, among the ids ``inside``."""
    reached = {id(n): n for n in starts}
    stack = list(reached.values())
    while stack:
        for node in following(stack.pop()):
            if id(node) not in reached and id(node) in inside:
                reached[id(node)] = node
                stack.append(node)
    return reached


def _undone_producer(tensor: Tensor, order: AxisMap) -> Node | None:
    """Return the node that makes a tensor, if ``order`` undoes it."""
    producer = query.producer(tensor)
    before = None if producer is None else AxisMap.from_node(producer)
    return producer if before is not None and before.inverse == order else None


class _Piece:
    """Connected nodes that could compute in another order of axes.

    Each lies on a path from a node to its inverse. These are removed, and a new node
    is inserted at every other edge of the border. The rewrite is done only if it removes more
    nodes than it inserts, so it terminates.

    Attributes:
        sources: tensors read from outside, by id.
        before: node that is undone, by id of the source it makes.
        after: nodes that undo the order, by id of the result they read.
        stay: ids of results that are needed as they were.
    """

    def __init__(self, model: Model, order: AxisMap, nodes: list[Node]) -> None:
        self.model, self.order, self.nodes = model, order, nodes
        self._inside = {id(n) for n in nodes}
        internal = {id(t): t for n in nodes for t in n.outputs}
        read = {id(t): t for n in nodes for t in variables(n)}
        self.sources = {key: t for key, t in read.items() if key not in internal}
        self.results = {key: t for key, t in internal.items() if self._leaves(t, self._inside)}
        producers = {key: _undone_producer(t, order) for key, t in self.sources.items()}
        self.before = {key: n for key, n in producers.items() if n is not None}
        self.after = {key: self._undoing_consumers(t) for key, t in self.results.items()}
        inside = self._inside | {id(n) for undoing in self.after.values() for n in undoing}
        self.stay = {key for key, t in self.results.items() if self._leaves(t, inside)}
        self._new_nodes = len(self.sources) - len(self.before) + len(self.stay)

    def saves_nodes(self) -> bool:
        """Return whether fewer layout nodes are left after the change.

        False also where the piece does not lie between a node and its inverse, or where
        one node is both.
        """
        undoing = {id(n): n for nodes in self.after.values() for n in nodes}
        if not undoing or not self.before:
            return False
        if any(id(n) in undoing for n in self.before.values()):
            return False  # a node that is its own inverse, between two nodes of the piece
        removed = [key for key in self.before if not self._leaves(self.sources[key], self._inside)]
        return len(removed) + len(undoing) > self._new_nodes

    def _leaves(self, tensor: Tensor, inside: set[int]) -> bool:
        consumers = query.consumers(tensor)
        return self.model.is_output(tensor) or any(id(n) not in inside for n in consumers)

    def _undoing_consumers(self, tensor: Tensor) -> list[Node]:
        """Return the inverse nodes behind a result, at most a single graph output."""
        nodes = [n for n in query.consumers(tensor) if self.model.is_top_level(n)]
        nodes = [n for n in nodes if AxisMap.from_node(n) == self.order]
        named = [n for n in nodes if self.model.is_output(n.outputs[0])]
        return [n for n in nodes if not any(n is extra for extra in named[1:])]

    def move(self, log: Log) -> None:
        """Let all nodes compute in the other order of axes."""
        undoing = [(n, key) for key, nodes in self.after.items() for n in nodes]
        stay = [t for key, t in self.results.items() if key in self.stay]
        nodes = [*self.before.values(), *self.nodes, *(n for n, _ in undoing)]
        unique = list({id(n): n for n in nodes}.values())
        ops = ", ".join(dict.fromkeys(n.op for n in self.nodes))
        around = {id(n): n.op for n in unique if id(n) not in self._inside}
        names = " and ".join(sorted({f"{op}s" for op in around.values()}))
        before = f"{ops} between {len(around)} {names}"
        after = f"between {self._new_nodes} {names}"
        outputs = [*(n.outputs[0] for n, _ in undoing), *stay]
        # Constants have the real extents, so the rewrite is measured at these.
        with log.rewrite(
            self.model, unique, before, after, outputs=outputs, modulus=None
        ) as record:
            for key, tensor in self.sources.items():
                node = self.before.get(key)
                if node is None:
                    origin = self._inner_consumers(tensor)[0]
                    source = self.order.insert(self.model, origin, tensor)
                else:
                    source = node.inputs[0]
                self._replace(tensor, source)
                if node is not None and not self._leaves(tensor, set()):
                    edit.disconnect(node)
            for node in self.nodes:
                move(self.model, node, self.order)
            pairs = [(n, t) for n in self.nodes for t in list(n.outputs)]
            moved = {id(t): self._move_result(n, t) for n, t in pairs}
            if record.old is not None:
                results = [*(moved[key] for _, key in undoing), *stay]
                record.new = trace(self.model, record.old, results)

    def _inner_consumers(self, tensor: Tensor) -> list[Node]:
        unique = {id(n): n for n in query.consumers(tensor)}
        return [n for key, n in unique.items() if key in self._inside]

    def _replace(self, old: Tensor, new: Tensor) -> None:
        for node in self._inner_consumers(old):
            for index, tensor in enumerate(data_inputs(node)):
                if tensor is old:
                    node.inputs[index] = new

    def _move_result(self, node: Node, tensor: Tensor) -> Tensor:
        """Replace an output of a node by the tensor in the other order, and return this.

        The two tensors exchange names, unless either is an output of the model.
        """
        model, undoing = self.model, self.after.get(id(tensor), [])
        moved = next((n.outputs[0] for n in undoing if model.is_output(n.outputs[0])), None)
        if moved is None:
            moved = edit.variable(model, tensor.name, dtype=tensor.dtype)
            if not model.is_output(tensor):
                edit.exchange_names(moved, tensor)
        dims = query.shape(tensor)
        moved.shape = None if dims is None else self.order.apply(dims, 1)
        for inverse_node in undoing:
            result = inverse_node.outputs[0]
            edit.disconnect(inverse_node)
            if result is not moved:
                edit.redirect(result, moved)
        edit.replace_output(node, tensor, moved)
        self._replace(tensor, moved)
        if id(tensor) in self.stay:
            edit.hand_over(self.order.inverse.insert(model, node, moved), tensor)
        return moved
