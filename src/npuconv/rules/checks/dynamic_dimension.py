"""The padding depends on a dimension that is not known.

What it checks:
    The extents that the pads depend on which `auto_pad` of a convolution asks for, or
    `output_shape` of a ConvTranspose. By auto_pad with stride 1 the pads are the same for
    every extent; with a larger stride, and by output_shape, they depend on it.

Why it matters:
    The device takes numbers. Pads worked out for one extent are silently wrong for
    another.

How to fix:
    Give the shape of the input with --input-shape.
"""

from __future__ import annotations

from npuconv.model import Node, query, window
from npuconv.rules import RuleContext, Violation, Violations, conv, rule
from npuconv.rules.target_limits import advice_on_shape, missing_axis


@rule(
    "SHP012",
    ops=set(query.CONVOLUTIONS),
    message="{what} needs the input extent of axis {axis}, which is {dim}",
    fires=conv('auto_pad = "SAME_UPPER", strides = [2, 2]', x="1,3,H,8"),
    silent=conv('auto_pad = "SAME_UPPER", strides = [2, 2]'),
)
def dynamic_dimension(node: Node, ctx: RuleContext) -> Violations:
    axis = missing_axis(node, ctx)
    win = window(node) if axis is not None else None
    if axis is None or win is None:
        return
    dims = query.shape(node.inputs[0]) or ()
    dim = dims[axis + 2] if axis + 2 < len(dims) else None
    # A name that no input has was invented by shape inference.
    named = any(dim in (query.shape(t) or ()) for t in ctx.model.graph.inputs)
    missing = f"symbolic ({dim})" if named and isinstance(dim, str) else "not known"
    attribute = f"{win.auto_pad} with stride {win.strides[axis]}"
    if win.output_shape:
        attribute = f"output_shape {list(win.output_shape)}"
    yield Violation(
        {"what": attribute, "axis": axis + 2, "dim": missing},
        value=f"axis {axis + 2} = {dim if missing != 'not known' else '?'}",
        limit="a number",
        source=f"ONNX {win.op}-11, attribute {'output_shape' if win.output_shape else 'auto_pad'}",
        fix=advice_on_shape(ctx.model, node),
    )
