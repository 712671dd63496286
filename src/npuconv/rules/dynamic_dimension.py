"""A dimension is not known that the padding depends on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.model import query
from npuconv.model.conv import resolved_pads, window
from npuconv.rules import SLIDING, Violation, rule

if TYPE_CHECKING:
    from npuconv.model.types import Node
    from npuconv.rules._context import RuleContext


@rule(
    "SHP012",
    ops=SLIDING,
    message="{auto_pad} with stride {stride} needs the input extent of axis {axis}, which is {dim}",
)
def dynamic_dimension(node: Node, ctx: RuleContext) -> Iterator[Violation]:
    """A dimension is not known that the padding depends on.

    What it checks:
        Whether the pads that `auto_pad` asks for can be worked out. With stride 1 they
        are the same for every extent; with a larger stride they depend on the extent.

    Why it matters:
        The device takes numbers. Pads worked out for one extent are wrong for another,
        and nothing would say so.

    How to fix:
        Give the shape of the input with --input-shape.
    """
    win = window(node)
    # A pool the device is not asked to run keeps its auto_pad: the host's runtime has the extent.
    if win is None or win.auto_pad == "NOTSET" or ctx.operator(node) is None:
        return
    # Other rules report a kernel of unknown extent, and attributes of wrong lengths.
    if win.kernel is None or not ctx.facts(node):
        return
    axis = resolved_pads(win)
    if not isinstance(axis, int):
        return
    dims = query.shape(node.inputs[0]) or ()
    dim = dims[axis + 2] if axis + 2 < len(dims) else None
    yield Violation(
        {
            "auto_pad": win.auto_pad,
            "stride": win.strides[axis],
            "axis": axis + 2,
            "dim": f"symbolic ({dim})" if dim else "not known",
        },
        value=f"axis {axis + 2} = {dim or '?'}",
        limit="a number",
        source="ONNX Conv-11, attribute auto_pad",
        fix=_advice(ctx),
    )


def _advice(ctx: RuleContext) -> str:
    """The flag to give, with the input's own name and what of it is known."""
    for tensor in ctx.model.graph.inputs:
        dims = query.shape(tensor)
        if dims and any(not isinstance(d, int) for d in dims):
            shown = ",".join(str(d) if isinstance(d, int) else "?" for d in dims)
            return f"give --input-shape {tensor.name}={shown} with numbers for every ?"
    return ""
