"""Eliminate ceil_mode where rounding up and rounding down give the same.

Runtimes do not count a last window that would start in the padding; ONNX's shape
inference did before opset 22, and onnxruntime then refuses what follows. Needs the
extents; a pool that rounds up to another number of cells keeps the attribute.
"""

from __future__ import annotations

from npuconv.legalize.context import PassContext
from npuconv.legalize.registry import Phase, model_pass
from npuconv.model import query
from npuconv.model.conv import SAME, Window, conv_output, pool_output, window
from npuconv.model.core import Model


@model_pass(Phase.CANONICALIZE, after=("raise-opset",))
def eliminate_ceil_mode(model: Model, ctx: PassContext) -> int:
    fired = 0
    for node in model.nodes(*query.POOLS):
        win = window(node)
        if win is not None and query.attribute(node, "ceil_mode", 0) and _rounds_alike(win):
            with ctx.rewrite(model, [node], "ceil_mode=1", "ceil_mode=0", modulus=None):
                node.attrs["ceil_mode"] = 0
            fired += 1
    return fired


def _rounds_alike(win: Window) -> bool:
    if win.kernel is None or win.auto_pad in SAME:
        return False
    for axis, kernel in enumerate(win.kernel):
        extent = win.extent(axis)
        if extent is None:
            return False
        size = (extent, kernel, win.strides[axis], win.dilations[axis], win.pads[axis])
        if pool_output(*size, ceil=True) != conv_output(*size):
            return False
    return True
