"""Compute now what depends on constants only."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import query

if TYPE_CHECKING:
    from npuconv.legalize.context import PassContext
    from npuconv.model.core import Model
    from npuconv.model.types import Node


@model_pass(Phase.CANONICALIZE, after=("name-nodes",), infers=True)
def fold_constants(model: Model, ctx: PassContext) -> int:
    """Compute now what depends on constants only.

    Constant nodes become initializers; shapes of tensors whose extents are all known,
    ConstantOfShape, DequantizeLinear of a weight and everything else that reads
    constants only is run once, on onnxruntime, and checked against ONNX's reference.

    A tensor that would be larger than ``max_folded_mib`` stays computed, and so does
    what is random, has a subgraph, or makes an output of the model.
    """
    from npuconv.legalize.tools import fold as _fold

    fired = sum(_fold.constant_node(model, node) for node in model.nodes("Constant"))
    fired += sum(_fold.shape_node(model, node) for node in model.nodes("Shape", "Size"))
    nodes = _foldable(model, ctx)
    if nodes:
        before = f"{len(nodes)} nodes on constants ({_histogram(nodes)})"
        with ctx.rewrite(model, nodes[:1], before, "initializers", measure=False) as record:
            folded = _fold.compute(model, ctx, nodes, record)
        if folded < len(nodes):
            record.before = f"{folded} of {before}"
        if not folded:
            ctx.rewrites.pop()
        fired += folded
    return fired


def _histogram(nodes: list[Node]) -> str:
    counts = Counter(node.op for node in nodes)
    return ", ".join(f"{op} x {n}" for op, n in sorted(counts.items()))


def _foldable(model: Model, ctx: PassContext) -> list[Node]:
    """Nodes that read constants, or each other, in topological order."""
    from npuconv.legalize.tools import fold as _fold

    known: set[int] = set()
    found: list[Node] = []
    for node in model.nodes():
        if not _reads_constants(node, known) or not _fold.is_pure(node):
            continue
        if any(model.is_output(t) for t in node.outputs):
            continue
        reason = _fold.too_large(node, ctx.options.max_folded_mib * 2**20)
        if reason:
            ctx.refuse(model, node, reason)
            continue
        found.append(node)
        known.update(id(t) for t in node.outputs)
    return found


def _reads_constants(node: Node, known: set[int]) -> bool:
    tensors = [t for t in node.inputs if t.name or query.is_constant(t)]
    return bool(tensors) and all(query.is_constant(t) or id(t) in known for t in tensors)
