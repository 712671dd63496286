"""Work out shapes that are computed at run time although they are known.

Exporters compute amounts of padding, targets of a Reshape and sizes of a Resize from
the shape of a tensor, even where only the batch is dynamic. Every element is followed
by itself: a tensor of which all elements are known becomes a constant.

A Reshape to a shape of which at most one extent is not known gets a constant shape
too: 0 stands for an extent that the input has in the same place, -1 for the rest. An
Expand gets 1 for an extent that is not to change.

What is in doubt stays computed. The arithmetic is run on made-up extents as well, and
must agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from npuconv.legalize.context import PassContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import edit, query
from npuconv.model.core import Model
from npuconv.model.types import Node, Tensor

if TYPE_CHECKING:
    from npuconv.legalize.tools.shape_values import Facts


@model_pass(Phase.CANONICALIZE, after=("fold-constants",), infers=True)
def propagate_shapes(model: Model, ctx: PassContext) -> int:
    from npuconv.legalize.tools import shape_values

    if not model.nodes(*shape_values.SOURCES):
        return 0
    facts = shape_values.evaluate(model)
    fired = _fold(model, ctx, facts)
    for node in model.nodes("Reshape", "Expand"):
        fired += _settle(model, ctx, facts, node)
    return fired


def _fold(model: Model, ctx: PassContext, facts: Facts) -> int:
    """Turn tensors whose elements are all known into constants."""
    from npuconv.legalize.tools import shape_values

    frontier = [t for t, part in facts.tensors.values() if part.complete and _is_read(facts, t)]
    if not frontier:
        return 0
    notes = _confirm(model, ctx, facts, frontier)
    for tensor in frontier:
        part = facts.of(tensor)
        assert part is not None
        nodes = shape_values.chain(facts, tensor)
        after = f"the constant {_shown(part.elements.tolist())}"
        with ctx.rewrite(model, nodes, _histogram(nodes), after, measure=False) as record:
            record.reference, record.difference, record.note = notes
            edit.replace_by_constant(model, tensor, part.values())
    return len(frontier)


def _is_read(facts: Facts, tensor: Tensor) -> bool:
    """Return whether a tensor has a reader that does not become a constant itself."""
    readers = query.consumers(tensor)
    return any(not all(map(facts.is_complete, reader.outputs)) for reader in readers)


def _settle(model: Model, ctx: PassContext, facts: Facts, node: Node) -> int:
    """Write the shape that a Reshape or Expand asks for with 0, 1 and -1."""
    from npuconv.legalize.tools import shape_values

    asked = query.input_of(node, 1)
    part, dims = facts.of(asked), facts.extents(node.inputs[0])
    if asked is None or part is None or part.complete or query.attribute(node, "allowzero", 0):
        return 0
    written = (_reshaped if node.op == "Reshape" else _expanded)(list(part.elements.flat), dims)
    if written is None:
        asks = _shown(part.elements.tolist())
        ctx.refuse(model, node, f"it asks for {asks}: too much of that is known at run time only")
        return 0
    nodes = [*shape_values.chain(facts, asked), node]
    measurable = _runs_alone(nodes)
    notes = ("", None, "") if measurable else _confirm(model, ctx, facts, [asked])
    with ctx.rewrite(
        model, nodes, _histogram(nodes), f"{node.op} to {written}", outputs=list(node.outputs),
        modulus=None, measure=measurable,
    ) as record:  # fmt: skip
        if not measurable:
            record.reference, record.difference, record.note = notes
        edit.set_input(node, 1, edit.integers(model, f"{node.name}/shape", written))
    return 1


def _reshaped(asked: Sequence[Any], dims: Sequence[Any] | None) -> list[int] | None:
    """Return the shape for Reshape: 0 copies an extent, -1 is the remaining one, once."""
    held = dims or ()
    written = [
        wanted if isinstance(wanted, int)
        else 0 if wanted is not None and place < len(held) and wanted == held[place]
        else -1
        for place, wanted in enumerate(asked)
    ]  # fmt: skip
    return written if written.count(-1) < 2 else None


def _expanded(asked: Sequence[Any], dims: Sequence[Any] | None) -> list[int] | None:
    """Return the shape for Expand, which counts from the last axis: 1 leaves an extent."""
    if dims is None:
        return None
    held = [None] * (len(asked) - len(dims)) + list(dims)[-len(asked) or len(dims) :]
    written: list[int] = []
    for wanted, there in zip(asked, held, strict=True):
        if isinstance(wanted, int):
            written.append(wanted)
        elif wanted is not None and wanted == there:
            written.append(1)
        else:
            return None
    return written


def _runs_alone(nodes: Sequence[Node]) -> bool:
    """Return whether random extents fit: all of one tensor, each of its names only once."""
    made = {id(t) for node in nodes for t in node.outputs}
    read = {id(t): t for node in nodes for t in node.inputs if id(t) not in made}
    fed = [query.shape(t) or () for t in read.values() if not query.is_constant(t) and t.name]
    names = [dim for dims in fed for dim in dims if isinstance(dim, str)]
    return len(fed) == 1 and len(set(names)) == len(names)


def _confirm(
    model: Model, ctx: PassContext, facts: Facts, tensors: Sequence[Tensor]
) -> tuple[str, float | None, str]:
    """Return reference, difference and note of a record."""
    from npuconv.legalize.tools import shape_values

    if not ctx.verify:
        return "not measured", None, ""
    obstacle = shape_values.confirm(model, facts, tensors)
    return ("not measured", None, obstacle) if obstacle else ("onnxruntime", 0.0, "")


def _histogram(nodes: Sequence[Node]) -> str:
    counts = Counter(node.op for node in nodes)
    return " + ".join(f"{op} x {n}" if n > 1 else op for op, n in counts.items())


def _shown(elements: Any) -> str:
    """Return elements as text, with ? for those that are not known."""
    if isinstance(elements, list):
        return f"[{', '.join(map(_shown, elements))}]"
    return str(elements) if isinstance(elements, (bool, int, float)) else "?"
