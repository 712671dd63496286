"""Composition of nodes in a row that only move data: the shortest equal sequence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from npuconv.legalize.device import TargetDevice
from npuconv.legalize.log import Log
from npuconv.legalize.region import trace
from npuconv.legalize.tools.layout import RESHAPES
from npuconv.legalize.tools.movement import CHANNELS, Movement, Sizes, Step
from npuconv.model import Model, Node, Tensor, edit, facts, query
from npuconv.partition.operators import takes_as
from npuconv.records import dataclass
from npuconv.target import Target

OPS = ("Transpose", *sorted(RESHAPES))
_MOVING = frozenset({*OPS, "Gather"})  # a Gather with a single index
MAX_NODES = 16  # largest number of nodes through which a tensor is followed: bounds time


@dataclass(frozen=True)
class _Change:
    """A rewrite of nodes that move data.

    Attributes:
        nodes: from the tensor to the results.
        removed: nodes without any other consumer.
        results: each with the operators that make it of the tensor.
        gain: nodes less that the target refuses, and nodes less.
    """

    nodes: list[Node]
    removed: list[Node]
    results: list[tuple[Tensor, list[Step]]]
    gain: tuple[int, int]


def compose(
    model: Model, device: TargetDevice, log: Log, longest: int = MAX_NODES, spare: int = 0
) -> int:
    """Compose nodes in a row, until this saves none; return the number of changes.

    Operators, at most ``longest``, take the place of nodes if the target refuses fewer, and they
    are at most ``spare`` more, or if the target refuses no more and they are fewer.
    """
    fired = 0
    while True:
        fired += _merge(model, log) if longest > 1 else 0  # two results have two encodings
        starts = [n for n in model.nodes(*OPS) if len(n.outputs)]
        changes = [c for n in starts for c in _changes(model, device, log, n, (longest, spare))]
        changes.sort(key=lambda change: (change.gain, -len(change.nodes)), reverse=True)
        changed: set[int] = set()
        for change in changes:
            ids = {id(node) for node in change.nodes}
            if changed.isdisjoint(ids):
                changed |= ids
                _apply(model, log, change)
                fired += 1
        if not changed:
            return fired


def _merge(model: Model, log: Log) -> int:
    """Merge nodes that move the data of one tensor alike; return the number of nodes removed."""
    unique: dict[tuple[int, Movement], Node] = {}
    merged = 0
    nodes = [n for n in model.nodes(*OPS) if len(n.outputs)]
    for node in [n for n in nodes if len(query.consumers(n.inputs[0])) > 1]:
        movement, result = _movement(node), node.outputs[0]
        if movement is None or model.is_output(result):
            continue
        equal = unique.setdefault((id(node.inputs[0]), movement), node)
        if equal is node:
            continue
        with log.rewrite(
            model, [equal, node], f"{node.op} twice", equal.op, outputs=[result], modulus=None
        ) as record:
            if record.old is not None:
                record.new = trace(model, record.old, [equal.outputs[0]])
            edit.redirect(result, equal.outputs[0])
            edit.disconnect(node)
            edit.inherit(model, equal, node)
        merged += 1
    return merged


def _movement(node: Node) -> Movement | None:
    source = node.inputs[0]
    movement = None if query.is_constant(source) else Movement.from_tensor(source)
    return None if movement is None else movement.through(node)


def _changes(
    model: Model, device: TargetDevice, log: Log, start: Node, bounds: tuple[int, int]
) -> Iterator[_Change]:
    """Yield the changes of nodes that move the data of the tensor that a node reads."""
    movement = _movement(start)
    if movement is None:
        return
    waiting, paths = [([start], movement)], list[tuple[list[Node], Movement]]()
    leaves: list[tuple[Node, Movement]] = []  # nodes whose result other operators read, too
    while waiting and len(paths) < MAX_NODES:
        path, movement = waiting.pop()
        paths.append((path, movement))
        result = path[-1].outputs[0]
        consumers = query.consumers(result)
        moved_consumers = [
            (n, movement.through(n))
            for n in consumers
            if n.op in _MOVING and n.inputs[0] is result and model.is_top_level(n)
        ]
        following = [([*path, n], moved) for n, moved in moved_consumers if moved is not None]
        if len(following) < len(consumers) or model.is_output(result):
            leaves.append((path[-1], movement))
        waiting += following
    for path, movement in paths:
        first = len(path) - 1
        while first and query.sole_consumer(model, path[first - 1].outputs[0]) is not None:
            first -= 1
        yield from _change(model, device, log, path, path[first:], [(path[-1], movement)], bounds)
    if len(leaves) > 1 and not waiting:
        nodes = [path[-1] for path, _ in paths]
        yield from _change(model, device, log, nodes, nodes, leaves, bounds)


def _change(
    model: Model,
    device: TargetDevice,
    log: Log,
    nodes: list[Node],
    removed: list[Node],
    leaves: list[tuple[Node, Movement]],
    bounds: tuple[int, int],
) -> Iterator[_Change]:
    """Yield the change, if it saves nodes; nodes are added only beside one the target takes."""
    target = device.target
    refused, count = sum(not takes_as(n.op, n, target) for n in removed), len(removed)
    consumers = [n for leaf, _ in leaves for n in query.consumers(leaf.outputs[0])]
    neighbours = filter(None, [query.producer(nodes[0].inputs[0]), *consumers])
    is_on_host = not any(map(target.operator, _MOVING))  # so only fewer nodes are a gain
    has_spare = not is_on_host and any(takes_as(n.op, n, target) for n in neighbours)
    spare = bounds[1] if has_spare else 0
    results: list[tuple[Tensor, list[Step]]] = []
    for node, movement in leaves:
        limit = max(min(bounds[0], count + spare - is_on_host), 0)
        forms = [form for form in movement.forms(longest=limit) if len(form) <= limit]
        if [] in forms and not edit.can_bypass(model, node, nodes[0].inputs[0]):
            log.refuse(
                model, node, "it copies an input or a shared tensor to an output of the model"
            )
            forms.remove([])
        if not forms:
            return
        steps = min(forms, key=lambda form: (_refusals(target, form), len(form)))
        if spare and _refusals(target, steps) and target.operator("Transpose"):
            detours = (form for form in movement.forms(2) if len(form) <= limit)
            steps = next((form for form in detours if not _refusals(target, form)), steps)
        refused, count = refused - _refusals(target, steps), count - len(steps)
        results.append((node.outputs[0], steps))
    if len(results) > 1 and any(not steps and model.is_output(t) for t, steps in results):
        return  # the tensor would have several names
    if count >= -spare and (refused, count) > (0, 0):
        yield _Change(nodes, removed, results, (refused, count))


def _refusals(target: Target, form: list[Step]) -> int:
    """Return the number of operators that the target refuses."""
    count = 0
    for step in form:
        operator = target.operator(step.op)
        perm = step.values if step.op == "Transpose" else ()
        measured = facts.of_movement(_shape(step.source), _shape(step.dims), perm)
        if step.op == "Gather":
            measured |= {"axis": CHANNELS, "indices_rank": 1}
        count += operator is None or bool(operator.objections(measured))
    return count


def _apply(model: Model, log: Log, change: _Change) -> None:
    nodes, source = change.nodes, change.nodes[0].inputs[0]
    before = " + ".join(dict.fromkeys(node.op for node in nodes))
    after = " + ".join(dict.fromkeys(s.op for _, steps in change.results for s in steps))
    outputs = [result for result, _ in change.results]
    with log.rewrite(
        model, nodes, before, after or "nothing", outputs=outputs, modulus=None
    ) as record:
        moved = [_write(model, source, steps, nodes) for _, steps in change.results]
        if record.old is not None:
            record.new = trace(model, record.old, moved)
        for result, tensor in zip(outputs, moved, strict=True):
            if tensor is not source:
                edit.hand_over(tensor, result)
            elif node := query.producer(result):
                edit.set_input(node, 0, source)
                edit.bypass(model, node)
        for node in change.removed:
            edit.disconnect(node)


def _write(model: Model, tensor: Tensor, steps: list[Step], nodes: list[Node]) -> Tensor:
    for step in steps:
        inputs, attrs = [tensor], dict[str, Any]()
        if step.op == "Transpose":
            attrs["perm"] = list(step.values)
        else:
            inputs.append(edit.integers(model, f"{model.label(nodes[0])}/{step.op}", step.values))
        if step.op == "Gather":
            attrs["axis"] = CHANNELS
        shape = _shape(step.dims)
        tensor = edit.insert(model, step.op, inputs, origin=nodes, shape=shape, attrs=attrs)
    return tensor


def _shape(dims: Sizes) -> tuple[int | str | None, ...]:
    """Return extents as ONNX states them."""
    return tuple(size.name if size.names else size.number for size in dims)
