"""Finds Transposes that undo each other, also past other nodes, and takes them out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from npuconv.legalize.tools.permuted import (
    Perm,
    composed,
    inverse,
    is_identity,
    is_movable,
    perm_of,
    variables,
)
from npuconv.legalize.tools.stretch import Bracket, Stretch, restores
from npuconv.model import edit, query

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node


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
