"""Remove Transposes that undo each other, also past operators between them.

Two in a row become one or none. Elementwise operators, Concat and Pad between a
Transpose and its inverse compute on the original tensor, with their constants and axes
in its order. A Transpose is inserted at every edge to other nodes, and nothing is done
unless the number of Transposes decreases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from npuconv.legalize.log import Log
from npuconv.legalize.region import trace
from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.layout import (
    Perm,
    data_inputs,
    inverse,
    is_identity,
    is_permutable,
    perm_of,
    permute,
    permuted,
    variables,
)
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor


@model_pass(Phase.LEGALIZE, infers=True)
def cancel_transposes(model: Model, log: Log) -> int:
    return cancel(model, log)


def cancel(model: Model, log: Log) -> int:
    """Remove every Transpose that can be undone, until there is none; return the changes.

    Constants have the real extents, so rewrites are measured at these.
    """
    total = 0
    while True:
        nodes = model.nodes("Transpose")
        fired = sum(_merge(model, log, node) + _drop(model, log, node) for node in nodes)
        for piece in list(_pieces(model)):
            piece.find_border()
            if piece.saves_transposes():
                piece.transpose(log)
                fired += 1
        if not fired:
            return total
        total += fired


def _merge(model: Model, log: Log, node: Node) -> int:
    """Merge two in a row; not where the first stays and nothing would be saved."""
    first = query.producer(node.inputs[0]) if len(node.inputs) else None
    inner, outer = None if first is None else perm_of(first), perm_of(node)
    if first is None or inner is None or outer is None or len(inner) != len(outer):
        return 0
    perm = [inner[axis] for axis in outer]
    alone = query.sole_consumer(model, node.inputs[0]) is not None
    if not alone and not (is_identity(perm) and edit.can_bypass(model, node)):
        return 0
    before, after, outputs = "Transpose, Transpose", f"perm={perm}", list(node.outputs)
    with log.rewrite(model, [first, node], before, after, outputs=outputs, modulus=None):
        node.attrs["perm"] = perm
        edit.set_input(node, 0, first.inputs[0])
        edit.inherit(model, node, first)
        if alone:
            edit.disconnect(first)
    return 1


def _drop(model: Model, log: Log, node: Node) -> int:
    perm = perm_of(node)
    if perm is None or not is_identity(perm) or not edit.can_bypass(model, node):
        return 0
    before, outputs = f"Transpose with perm={list(perm)}", list(node.outputs)
    with log.rewrite(model, [node], before, "nothing", outputs=outputs, modulus=None) as record:
        if record.old is not None:
            record.new = trace(model, record.old, [node.inputs[0]])
        edit.bypass(model, node)
    return 1


def _pieces(model: Model) -> Iterator[_Piece]:
    """Yield the present pieces between Transposes."""
    top = {id(node) for node in model.nodes()}
    areas: dict[Perm, set[int]] = {}
    for node in model.nodes("Transpose"):
        perm = perm_of(node)
        if perm is None or is_identity(perm):
            continue
        inverse_perm = inverse(perm)
        area_ids = areas.setdefault(inverse_perm, set())
        starts = [n for n in query.consumers(node.outputs[0]) if id(n) not in area_ids]
        starts = [n for n in starts if id(n) in top and is_permutable(n, len(perm))]
        if starts:
            area = _permutable_area(starts, top, len(perm))
            area_ids |= {id(n) for n in area}
            yield from _between(model, top, area, inverse_perm)


def _permutable_area(starts: Iterable[Node], top: set[int], rank: int) -> list[Node]:
    """Return every permutable node that is connected to these through permutable nodes."""
    area = {id(n): n for n in starts}
    stack = list(area.values())
    while stack:
        for node in _neighbours(stack.pop()):
            if id(node) not in area and id(node) in top and is_permutable(node, rank):
                area[id(node)] = node
                stack.append(node)
    return list(area.values())


def _producers(node: Node) -> list[Node]:
    return [producer for t in variables(node) if (producer := query.producer(t)) is not None]


def _consumers(node: Node) -> list[Node]:
    return [consumer for tensor in node.outputs for consumer in query.consumers(tensor)]


def _neighbours(node: Node) -> list[Node]:
    return _producers(node) + _consumers(node)


def _between(model: Model, top: set[int], area: list[Node], perm: Perm) -> Iterator[_Piece]:
    """Yield the nodes on a way from a Transpose to its inverse, in connected pieces."""
    inside = {id(n) for n in area}
    first = [n for n in area if any(_inverse_producer(t, perm) is not None for t in variables(n))]
    last = [n for n in area if any(perm_of(consumer) == perm for consumer in _consumers(n))]
    after, before = (
        _reachable_ids(first, inside, _consumers),
        _reachable_ids(last, inside, _producers),
    )
    remaining = {id(n): n for n in area if id(n) in after and id(n) in before}
    while remaining:
        start = next(iter(remaining.values()))
        connected = _reachable_ids([start], set(remaining), _neighbours)
        yield _Piece(model, perm, [n for key, n in remaining.items() if key in connected], top)
        remaining = {key: n for key, n in remaining.items() if key not in connected}


def _reachable_ids(
    starts: Iterable[Node], inside: set[int], following: Callable[[Node], Iterable[Node]]
) -> set[int]:
    stack = list(starts)
    reached = {id(n) for n in stack}
    while stack:
        for node in following(stack.pop()):
            if id(node) in inside and id(node) not in reached:
                reached.add(id(node))
                stack.append(node)
    return reached


def _inverse_producer(tensor: Tensor, perm: Perm) -> Node | None:
    """Return the Transpose that makes a tensor, if a Transpose by ``perm`` undoes it."""
    producer = query.producer(tensor)
    perm_of_maker = None if producer is None else perm_of(producer)
    return producer if perm_of_maker is not None and inverse(perm_of_maker) == perm else None


@dataclass
class _Piece:
    """Connected nodes that could compute on tensors transposed by ``perm``.

    Each node lies on a path from a Transpose to its inverse. These Transposes are removed, and
    a new Transpose is inserted at every other edge of the border. The rewrite is done only if
    it removes more Transposes than it inserts, so it terminates.
    """

    model: Model
    perm: Perm
    nodes: list[Node]
    top: set[int]  # nodes that are not in a subgraph
    sources: dict[int, Tensor] = field(default_factory=dict)  # read from outside
    results: dict[int, Tensor] = field(default_factory=dict)  # read outside
    before: dict[int, Node] = field(default_factory=dict)  # source -> Transpose it undoes
    after: dict[int, list[Node]] = field(default_factory=dict)  # result -> those that undo it
    stay: set[int] = field(default_factory=set)  # results that are needed as they were

    @cached_property
    def _inside(self) -> set[int]:
        return {id(n) for n in self.nodes}

    def find_border(self) -> None:
        """Note the present sources, results and surrounding Transposes."""
        internal = {id(t): t for n in self.nodes for t in n.outputs}
        read = {id(t): t for n in self.nodes for t in variables(n)}
        self.sources = {key: t for key, t in read.items() if key not in internal}
        self.results = {key: t for key, t in internal.items() if self._leaves(t, self._inside)}
        producers = {key: _inverse_producer(t, self.perm) for key, t in self.sources.items()}
        self.before = {key: n for key, n in producers.items() if n is not None}
        self.after = {key: self._inverse_consumers(t) for key, t in self.results.items()}
        inside = self._inside | {id(n) for nodes in self.after.values() for n in nodes}
        self.stay = {key for key, t in self.results.items() if self._leaves(t, inside)}

    def saves_transposes(self) -> bool:
        """Return whether the change removes more Transposes than it adds.

        False also where the piece does not lie between a Transpose and an inverse, or where
        one Transpose is both.
        """
        undone = {id(n): n for nodes in self.after.values() for n in nodes}
        if not undone or not self.before:
            return False
        if any(id(n) in undone for n in self.before.values()):
            return False  # one that is its own inverse, between two nodes of the piece
        removed = [key for key in self.before if not self._leaves(self.sources[key], self._inside)]
        return len(removed) + len(undone) > self._new_transposes

    @property
    def _new_transposes(self) -> int:
        """Return the number of Transposes that the change puts in."""
        return len(self.sources) - len(self.before) + len(self.stay)

    def _leaves(self, tensor: Tensor, inside: set[int]) -> bool:
        consumers = query.consumers(tensor)
        return self.model.is_output(tensor) or any(id(n) not in inside for n in consumers)

    def _inverse_consumers(self, tensor: Tensor) -> list[Node]:
        """Return the removable Transposes behind a result, at most a single graph output."""
        inverses = [n for n in query.consumers(tensor) if id(n) in self.top]
        inverses = [n for n in inverses if perm_of(n) == self.perm]
        named = [n for n in inverses if self.model.is_output(n.outputs[0])]
        return [n for n in inverses if not any(n is extra for extra in named[1:])]

    def transpose(self, log: Log) -> None:
        """Let all nodes compute on transposed tensors."""
        undone = [(n, key) for key, nodes in self.after.items() for n in nodes]
        stay = [t for key, t in self.results.items() if key in self.stay]
        nodes = [*self.before.values(), *self.nodes, *(n for n, _ in undone)]
        unique = list({id(n): n for n in nodes}.values())
        ops = ", ".join(dict.fromkeys(n.op for n in self.nodes))
        before = f"{ops} between {len(self.before) + len(undone)} Transposes"
        after = f"between {self._new_transposes} Transposes"
        outputs = [*(n.outputs[0] for n, _ in undone), *stay]
        with log.rewrite(
            self.model, unique, before, after, outputs=outputs, modulus=None
        ) as record:
            for key, tensor in self.sources.items():
                undone_node = self.before.get(key)
                if undone_node is None:
                    origin = self._inner_consumers(tensor)[:1]
                    shape = permuted(query.shape(tensor), self.perm)
                    attrs = {"perm": list(self.perm)}
                    source = edit.insert(
                        self.model, "Transpose", [tensor], origin=origin, shape=shape, attrs=attrs
                    )
                else:
                    source = undone_node.inputs[0]
                self._replace(tensor, source)
                if undone_node is not None and not self._leaves(tensor, set()):
                    edit.disconnect(undone_node)
            for node in self.nodes:
                permute(self.model, node, self.perm)
            pairs = [(n, t) for n in self.nodes for t in list(n.outputs)]
            transposed = {id(t): self._transpose_result(n, t) for n, t in pairs}
            if record.old is not None:
                results = [*(transposed[key] for _, key in undone), *stay]
                record.new = trace(self.model, record.old, results)

    def _inner_consumers(self, tensor: Tensor) -> list[Node]:
        unique = {id(n): n for n in query.consumers(tensor)}
        return [n for key, n in unique.items() if key in self._inside]

    def _replace(self, old: Tensor, new: Tensor) -> None:
        for node in self._inner_consumers(old):
            for index, tensor in enumerate(data_inputs(node)):
                if tensor is old:
                    node.inputs[index] = new

    def _transpose_result(self, node: Node, tensor: Tensor) -> Tensor:
        """Replace an output of a node by the transposed tensor, and return this.

        The two tensors exchange names, unless either is an output of the model.
        """
        model, undone = self.model, self.after.get(id(tensor), [])
        transposed = next((n.outputs[0] for n in undone if model.is_output(n.outputs[0])), None)
        if transposed is None:
            transposed = edit.variable(model, tensor.name, dtype=tensor.dtype)
            if not model.is_output(tensor):
                edit.exchange_names(transposed, tensor)
        transposed.shape = permuted(query.shape(tensor), self.perm)
        for inverse_node in undone:
            result = inverse_node.outputs[0]
            edit.disconnect(inverse_node)
            if result is not transposed:
                edit.redirect(result, transposed)
        index = next(i for i, t in enumerate(node.outputs) if t is tensor)
        node.outputs[index] = transposed
        self._replace(tensor, transposed)
        if id(tensor) in self.stay:
            attrs = {"perm": list(inverse(self.perm))}
            edit.add_node(model, "Transpose", [transposed], [tensor], origin=[node], attrs=attrs)
        return transposed
