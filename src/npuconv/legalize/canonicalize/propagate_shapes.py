"""Write shapes that are computed at run time although they are known.

Exporters compute amounts of padding, targets of a Reshape and sizes of a Resize from
the shape of a tensor, even where only the batch is dynamic. The arithmetic is run on
guesses at the unknown extents: a tensor that is the same for all of them becomes a constant.

A Reshape to a shape of which at most one extent is not known gets a constant shape
too: 0 copies the extent of the input at the same axis, -1 is inferred. An
Expand gets 1 for an extent that is not to change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from npuconv.lazy import np
from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.model import Model, Node, edit, query

if TYPE_CHECKING:
    from npuconv.legalize.tools.shape_values import ShapeValues


@register_pass(Phase.CANONICALIZE, after=("fold-constants",), infers=True)
def propagate_shapes(model: Model, log: Log) -> int:
    from npuconv.legalize.tools import shape_values

    if not model.nodes(*shape_values.SOURCES):
        return 0
    values = shape_values.evaluate(model)
    # Known tensors become constants, where a consumer does not become a constant itself.
    complete = {key: guesses for key, guesses in values.guesses.items() if guesses.complete}
    frontier = [
        guesses
        for guesses in complete.values()
        if any(
            any(id(t) not in complete for t in consumer.outputs)
            for consumer in query.consumers(guesses.tensor)
        )
    ]
    for guesses in frontier:
        nodes = shape_values.chain(values, guesses.tensor)
        after = f"the constant {shape_values.as_text(guesses.array)}"
        with log.rewrite(model, nodes, _histogram(nodes), after, measure=False) as record:
            record.reference, record.max_abs_difference = "onnxruntime", 0.0
            edit.replace_by_constant(model, guesses.tensor, guesses.array[0])
    nodes = model.nodes("Reshape", "Expand")
    return len(frontier) + sum(_write_target(model, log, values, node) for node in nodes)


def _write_target(model: Model, log: Log, values: ShapeValues, node: Node) -> int:
    """Write the target shape of a Reshape or Expand with 0, 1 and -1."""
    from npuconv.legalize.tools import shape_values

    target = query.input_of(node, 1)
    guesses, extents = values.get(target), values.extents(node.inputs[0])
    if target is None or guesses is None or guesses.complete:
        return 0
    if query.attribute(node, "allowzero", 0):
        return 0
    extents = np.zeros((len(guesses.rounds), 0)) if extents is None else extents[[*guesses.rounds]]
    shape = _target_shape(node.op, guesses.array, extents)
    if shape is None:
        text = shape_values.as_text(guesses.array)
        return log.refuse(
            model, node, f"it asks for {text}: too much of that is known at run time only"
        )
    nodes = [*shape_values.chain(values, target), node]
    measurable = _runs_alone(nodes)
    with log.rewrite(
        model, nodes, _histogram(nodes), f"{node.op} to {shape}", outputs=list(node.outputs),
        modulus=None, measure=measurable,
    ) as record:  # fmt: skip
        if not measurable:
            record.reference, record.max_abs_difference = "onnxruntime", 0.0
        edit.set_input(node, 1, edit.integers(model, f"{node.name}/shape", shape))
    return 1


def _target_shape(op: str, target: np.ndarray, extents: np.ndarray) -> list[int] | None:
    """Return the shape for a Reshape or Expand; None if too many extents are not known.

    In a Reshape 0 copies an extent, and -1 is the remaining one, once. An Expand counts from the
    last axis, and 1 leaves an extent.

    Args:
        op: the operator.
        target: extents that are asked for, shape (rounds, rank).
        extents: extents of the input, shape (rounds, rank); rank 0 where they are not known.
    """
    shape, rank = list[int](), extents.shape[1]
    for axis, extent in enumerate(target.T, 0 if op == "Reshape" else rank - target.shape[1]):
        if (extent == extent[0]).all():
            shape.append(int(extent[0]))
        elif 0 <= axis < rank and (extent == extents[:, axis]).all():
            shape.append(0 if op == "Reshape" else 1)
        elif op == "Reshape":
            shape.append(-1)
        else:
            return None
    return shape if shape.count(-1) < 2 else None


def _runs_alone(nodes: Sequence[Node]) -> bool:
    """Return whether random extents fit: all of one tensor, each of its names only once."""
    produced = {id(t) for node in nodes for t in node.outputs}
    consumed = {id(t): t for node in nodes for t in node.inputs if id(t) not in produced}
    fed = [query.shape(t) or () for t in consumed.values() if not query.is_constant(t) and t.name]
    names = [dim for dims in fed for dim in dims if isinstance(dim, str)]
    return len(fed) == 1 and len(set(names)) == len(names)


def _histogram(nodes: Sequence[Node]) -> str:
    counts = Counter(node.op for node in nodes)
    return " + ".join(f"{op} x {n}" if n > 1 else op for op, n in counts.items())
