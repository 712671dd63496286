"""A dimension is not known that the padding depends on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from npuconv.model import query
from npuconv.model.conv import window
from npuconv.rules import Example, Violation, rule
from npuconv.rules._extents import flags, missing_axis, shown_dimension

if TYPE_CHECKING:
    from npuconv.model.conv import Window
    from npuconv.model.types import Node
    from npuconv.rules._context import RuleContext


@rule(
    "SHP012",
    ops=set(query.CONVOLUTIONS),
    message="{what} needs the input extent of axis {axis}, which is {dim}",
    example=Example(
        fires="""
            input x: float[1,3,H,8]
            weight w: float[4,3,3,3]
            y = Conv <auto_pad = "SAME_UPPER", strides = [2, 2]> (x, w)
        """,
        silent="""
            input x: float[1,3,8,8]
            weight w: float[4,3,3,3]
            y = Conv <auto_pad = "SAME_UPPER", strides = [2, 2]> (x, w)
        """,
    ),
)
def dynamic_dimension(node: Node, ctx: RuleContext) -> Iterator[Violation]:
    """A dimension is not known that the padding depends on.

    What it checks:
        Whether the pads that `auto_pad` of a convolution asks for, or `output_shape` of a
        ConvTranspose, can be worked out. By auto_pad with stride 1 they are the same for
        every extent; with a larger stride, and by output_shape, they depend on the extent.

    Why it matters:
        The device takes numbers. Pads worked out for one extent are wrong for another,
        and nothing would say so.

    How to fix:
        Give the shape of the input with --input-shape.
    """
    axis = missing_axis(node, ctx)
    win = window(node) if axis is not None else None
    if axis is None or win is None:
        return
    dims = query.shape(node.inputs[0]) or ()
    dim = dims[axis + 2] if axis + 2 < len(dims) else None
    missing = shown_dimension(ctx.model, dim)
    given = flags(ctx.model, node)
    yield Violation(
        {
            "what": _asking(win, axis),
            "axis": axis + 2,
            "dim": missing,
        },
        value=f"axis {axis + 2} = {dim if missing != 'not known' else '?'}",
        limit="a number",
        source=f"ONNX {win.op}-11, attribute {'output_shape' if win.output_shape else 'auto_pad'}",
        fix=f"give {given} with numbers for every ?" if given else "",
    )


def _asking(win: Window, axis: int) -> str:
    """The attributes that ask for the extent."""
    if win.output_shape:
        return f"output_shape {list(win.output_shape)}"
    return f"{win.auto_pad} with stride {win.strides[axis]}"
