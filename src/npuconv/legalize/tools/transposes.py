"""A stretch of graph between Transposes that undo each other, turned as a whole.

Its nodes compute the same in any order of the axes, and each lies on a way from a Transpose
to one that undoes it. These go, and where the stretch touches anything else, a new one is
put in. That pays only if more go than come, so it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from npuconv.legalize.tools.layout import (
    Perm,
    composed,
    data_inputs,
    inverse,
    is_identity,
    is_movable,
    perm_of,
    permute,
    permuted_dims,
    variables,
)
from npuconv.model import edit, query

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor

# Says which tensors hold the values of the outputs once the change is made.
Settle = Callable[[Sequence["Tensor"]], None]
# (nodes, before, after, outputs): brackets one change.
Bracket = Callable[[Sequence["Node"], str, str, Sequence["Tensor"]], AbstractContextManager[Settle]]


def restores(tensor: Tensor, perm: Perm) -> Node | None:
    """The Transpose that makes a tensor, if a Transpose by ``perm`` undoes it."""
    maker = query.producer(tensor)
    found = None if maker is None else perm_of(maker)
    return maker if found is not None and inverse(found) == perm else None


@dataclass
class Stretch:
    """Nodes that could compute on tensors transposed by ``perm``, and what that would take."""

    model: Model
    perm: Perm
    nodes: list[Node]
    top: set[int]  # nodes that are not in a subgraph
    sources: dict[int, Tensor] = field(default_factory=dict)  # read from outside
    results: dict[int, Tensor] = field(default_factory=dict)  # read outside
    before: dict[int, Node] = field(default_factory=dict)  # source -> Transpose it undoes
    after: dict[int, list[Node]] = field(default_factory=dict)  # result -> those that undo it
    stay: set[int] = field(default_factory=set)  # results that are needed as they were

    def look_around(self) -> None:
        """See what lies around it now."""
        inside = self._inside
        made = {id(t): t for n in self.nodes for t in n.outputs}
        read = {id(t): t for n in self.nodes for t in variables(n)}
        self.sources = {key: t for key, t in read.items() if key not in made}
        self.results = {key: t for key, t in made.items() if self._leaves(t, inside)}
        makers = {key: restores(t, self.perm) for key, t in self.sources.items()}
        self.before = {key: n for key, n in makers.items() if n is not None}
        self.after = {key: self._undoing(t) for key, t in self.results.items()}
        undone = {id(n) for nodes in self.after.values() for n in nodes}
        outer = self.results.items()
        self.stay = {key for key, t in outer if self._leaves(t, inside | undone)}

    def pays(self) -> bool:
        """Return whether turning the stretch removes more Transposes than it adds.

        False also where it does not lie between a Transpose and an inverse, or where one
        Transpose is both.
        """
        undone = {id(n): n for nodes in self.after.values() for n in nodes}
        if not undone or not self.before:
            return False
        if any(id(n) in undone for n in self.before.values()):
            return False  # one that is its own inverse, between two nodes of the stretch
        gone = [key for key in self.before if not self._leaves(self.sources[key], self._inside)]
        come = len(self.sources) - len(self.before) + len(self.stay)
        return len(gone) + len(undone) > come

    def _leaves(self, tensor: Tensor, inside: set[int]) -> bool:
        readers = query.consumers(tensor)
        return self.model.is_output(tensor) or any(id(n) not in inside for n in readers)

    def _undoing(self, tensor: Tensor) -> list[Node]:
        """The Transposes behind a result that go; of those that make an output, one can."""
        found = [n for n in query.consumers(tensor) if id(n) in self.top]
        found = [n for n in found if perm_of(n) == self.perm]
        named = [n for n in found if self.model.is_output(n.outputs[0])]
        return [n for n in found if not any(n is other for other in named[1:])]

    def turn(self, bracket: Bracket) -> None:
        """Let all of its nodes compute on transposed tensors."""
        undone = [(n, key) for key, nodes in self.after.items() for n in nodes]
        stay = [t for key, t in self.results.items() if key in self.stay]
        nodes = [*self.before.values(), *self.nodes, *(n for n, _ in undone)]
        ops = ", ".join(dict.fromkeys(n.op for n in self.nodes))
        come = len(self.sources) - len(self.before) + len(stay)
        text = f"{ops} between {len(self.before) + len(undone)} Transposes"
        kept = [*(n.outputs[0] for n, _ in undone), *stay]
        unique = list({id(n): n for n in nodes}.values())
        with bracket(unique, text, f"between {come} Transposes", kept) as settle:
            self._turn_sources()
            for node in self.nodes:
                permute(self.model, node, self.perm)
            made = [(n, t) for n in self.nodes for t in list(n.outputs)]
            turned = {id(t): self._turn_result(n, t) for n, t in made}
            settle([*(turned[key] for _, key in undone), *stay])

    def _turn_sources(self) -> None:

        for key, tensor in self.sources.items():
            maker = self.before.get(key)
            turned = maker.inputs[0] if maker is not None else self._transposed(tensor)
            self._replace(tensor, turned)
            if maker is not None and not self._leaves(tensor, set()):
                edit.disconnect(maker)

    def _transposed(self, tensor: Tensor) -> Tensor:

        shape = permuted_dims(query.shape(tensor), self.perm)
        attrs = {"perm": list(self.perm)}
        origin = self._readers(tensor)[:1]
        return edit.insert(
            self.model, "Transpose", [tensor], origin=origin, shape=shape, attrs=attrs
        )

    def _readers(self, tensor: Tensor) -> list[Node]:
        """The nodes of the stretch that read a tensor."""
        inside = self._inside
        return [n for n in {id(n): n for n in query.consumers(tensor)}.values() if id(n) in inside]

    @cached_property
    def _inside(self) -> set[int]:
        return {id(n) for n in self.nodes}

    def _replace(self, old: Tensor, new: Tensor) -> None:
        """Within the stretch only."""
        for node in self._readers(old):
            for index, tensor in enumerate(data_inputs(node)):
                if tensor is old:
                    node.inputs[index] = new

    def _turn_result(self, node: Node, tensor: Tensor) -> Tensor:
        """Replace an output of a node by the transposed one, and return that.

        The two exchange names, unless one of them is an output of the model.
        """
        model = self.model
        undone = self.after.get(id(tensor), [])
        turned = next((n.outputs[0] for n in undone if model.is_output(n.outputs[0])), None)
        if turned is None:
            turned = edit.variable(model, tensor.name, dtype=tensor.dtype)
            if not model.is_output(tensor):
                edit.exchange_names(turned, tensor)
        turned.shape = permuted_dims(query.shape(tensor), self.perm)
        for other in undone:
            result = other.outputs[0]
            edit.disconnect(other)
            if result is not turned:
                edit.redirect(result, turned)
        index = next(i for i, t in enumerate(node.outputs) if t is tensor)
        node.outputs[index] = turned
        self._replace(tensor, turned)
        if id(tensor) in self.stay:
            attrs = {"perm": list(inverse(self.perm))}
            edit.add_node(model, "Transpose", [turned], [tensor], origin=[node], attrs=attrs)
        return turned


def cancel(model: Model, bracket: Bracket) -> int:
    """Take out every Transpose that can be undone, until there is none.

    Returns:
        How many changes were made.
    """
    total = 0
    while fired := _merge_all(model, bracket) + _turn_all(model, bracket):
        total += fired
    return total


def _merge_all(model: Model, bracket: Bracket) -> int:
    nodes = model.nodes("Transpose")
    return sum(_merge(model, bracket, node) + _drop(model, bracket, node) for node in nodes)


def _merge(model: Model, bracket: Bracket, node: Node) -> int:
    """Two in a row are one; not where the first stays and nothing would be saved."""
    first = query.producer(node.inputs[0]) if len(node.inputs) else None
    inner, outer = None if first is None else perm_of(first), perm_of(node)
    if first is None or inner is None or outer is None or len(inner) != len(outer):
        return 0
    merged = composed(inner, outer)
    alone = query.sole_consumer(model, node.inputs[0]) is not None
    if not alone and not (is_identity(merged) and edit.can_bypass(model, node)):
        return 0
    with bracket([first, node], "Transpose, Transpose", f"perm={list(merged)}", list(node.outputs)):
        node.attrs["perm"] = list(merged)
        edit.set_input(node, 0, first.inputs[0])
        edit.inherit(model, node, first)
        if alone:
            edit.disconnect(first)
    return 1


def _drop(model: Model, bracket: Bracket, node: Node) -> int:
    perm = perm_of(node)
    if perm is None or not is_identity(perm) or not edit.can_bypass(model, node):
        return 0
    before = f"Transpose with perm={list(perm)}"
    with bracket([node], before, "nothing", list(node.outputs)) as settle:
        settle([node.inputs[0]])
        edit.bypass(model, node)
    return 1


def _turn_all(model: Model, bracket: Bracket) -> int:
    fired = 0
    for stretch in list(_stretches(model)):
        stretch.look_around()
        if stretch.pays():
            stretch.turn(bracket)
            fired += 1
    return fired


def _stretches(model: Model) -> Iterator[Stretch]:
    """Yield the stretches that lie between Transposes as they are now."""
    top = {id(node) for node in model.nodes()}
    seen: dict[Perm, set[int]] = {}
    for node in model.nodes("Transpose"):
        perm = perm_of(node)
        if perm is None or is_identity(perm):
            continue
        wanted = inverse(perm)
        known = seen.setdefault(wanted, set())
        starts = [n for n in query.consumers(node.outputs[0]) if id(n) not in known]
        starts = [n for n in starts if id(n) in top and is_movable(n, len(perm))]
        if starts:
            area = _area(starts, top, len(perm))
            known |= {id(n) for n in area}
            yield from _between(model, top, area, wanted)


def _area(starts: Iterable[Node], top: set[int], rank: int) -> list[Node]:
    """Every movable node that is connected to these through movable nodes."""
    found = {id(n): n for n in starts}
    stack = list(found.values())
    while stack:
        for node in _neighbours(stack.pop()):
            if id(node) not in found and id(node) in top and is_movable(node, rank):
                found[id(node)] = node
                stack.append(node)
    return list(found.values())


def _neighbours(node: Node) -> Iterator[Node]:
    for tensor in variables(node):
        maker = query.producer(tensor)
        if maker is not None:
            yield maker
    yield from _readers(node)


def _readers(node: Node) -> list[Node]:
    return [reader for tensor in node.outputs for reader in query.consumers(tensor)]


def _between(model: Model, top: set[int], area: list[Node], perm: Perm) -> Iterator[Stretch]:
    """The nodes on a way from a Transpose to its inverse, in connected pieces."""
    inside = {id(n) for n in area}
    first = [n for n in area if any(restores(t, perm) is not None for t in variables(n))]
    last = [n for n in area if any(perm_of(reader) == perm for reader in _readers(n))]
    after = _reached(first, inside, _readers)
    before = _reached(last, inside, lambda n: [m for t in variables(n) if (m := query.producer(t))])
    left = {id(n): n for n in area if id(n) in after and id(n) in before}
    while left:
        start = next(iter(left.values()))
        piece = _reached([start], set(left), lambda n: list(_neighbours(n)))
        yield Stretch(model, perm, [n for key, n in left.items() if key in piece], top)
        left = {key: n for key, n in left.items() if key not in piece}


def _reached(
    starts: Iterable[Node], inside: set[int], following: Callable[[Node], Iterable[Node]]
) -> set[int]:
    stack = list(starts)
    found = {id(n) for n in stack}
    while stack:
        for node in following(stack.pop()):
            if id(node) in inside and id(node) not in found:
                found.add(id(node))
                stack.append(node)
    return found
