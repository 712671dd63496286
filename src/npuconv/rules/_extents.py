"""Extents that pads depend on and that nobody has given: which, and how to give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.model import query
from npuconv.model.conv import resolved_pads, window

if TYPE_CHECKING:
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor
    from npuconv.rules._context import RuleContext

EXTENTS = ("in_n", "in_h", "in_w", "out_n", "out_h", "out_w")  # that a model may leave open


def missing_axis(node: Node, ctx: RuleContext) -> int | None:
    """The first spatial axis whose extent the pads depend on and that is not known."""
    if not (query.attribute(node, "auto_pad") or query.attribute(node, "output_shape")):
        return None  # nearly all; what follows takes longer
    win = window(node)
    if win is None or (win.auto_pad == "NOTSET" and not win.output_shape):
        return None
    # A pool the device is not asked to run keeps its auto_pad: the host's runtime has the extent.
    if win.op in query.POOLS and ctx.operator(node) is None:
        return None
    # Other rules report a kernel of unknown extent, and attributes of wrong lengths.
    if win.kernel is None or not ctx.facts(node):
        return None
    axis = resolved_pads(win)
    return axis if isinstance(axis, int) else None


def shown_dimension(model: Model, dim: int | str | None) -> str:
    """Return a dimension as text; names that no input has were invented by shape inference."""
    named = any(dim in (query.shape(t) or ()) for t in model.graph.inputs)
    return f"symbolic ({dim})" if named and isinstance(dim, str) else "not known"


def flags(model: Model, node: Node) -> str:
    """The flags that give what the node lacks, or '' where no input is dynamic.

    Of several dynamic inputs only those that the node depends on are named.
    """
    dynamic = [t for t in model.graph.inputs if _is_dynamic(t)]
    if len(dynamic) > 1:
        above = _sources(node)
        dynamic = [t for t in dynamic if id(t) in above]
    return " ".join(f"--input-shape {t.name}={_shape(t)}" for t in dynamic)


def _is_dynamic(tensor: Tensor) -> bool:
    dims = query.shape(tensor)
    return dims is not None and any(not isinstance(d, int) for d in dims)


def _shape(tensor: Tensor) -> str:
    return ",".join(str(d) if isinstance(d, int) else "?" for d in query.shape(tensor) or ())


def _sources(node: Node) -> set[int]:
    """Every tensor that the node depends on."""
    found: set[int] = set()
    waiting = list(node.inputs)
    while waiting:
        tensor = waiting.pop()
        if id(tensor) not in found:
            found.add(id(tensor))
            maker = query.producer(tensor)
            waiting += list(maker.inputs) if maker is not None else []
    return found
