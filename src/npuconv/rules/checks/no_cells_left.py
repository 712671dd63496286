"""A kernel is larger than its padded input, or a Resize shrinks an axis to nothing.

What it checks:
    Every convolution, pool and Resize whose input extents are known: each axis of the
    result must have a cell.

Why it matters:
    A tensor of no cells has no values to calibrate, and all that reads it computes
    nothing. Most often the input is smaller than the network was made for.

How to fix:
    Give the input its real shape with --input-shape, or export the model for a larger
    one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice

from npuconv.model import Node, query, window
from npuconv.model.conv import SAME, effective_kernel, pool_output
from npuconv.rules import RuleContext, Violation, Violations, conv, rule

Fault = tuple[int, int, str]  # axis of the tensor, its extent, and the cause


@rule(
    "SHP020",
    ops={"AveragePool", "Conv", "LpPool", "MaxPool", "Resize"},
    malformed=True,
    message="axis {axis} of its input has {extent} cells, and {why}: nothing is left",
    model=conv("pads = [{}]", x="1,3,4,4", w="4,3,5,5"),
    fires="0, 0, 0, 0",
    silent="1, 1, 0, 0",
)
def no_cells_left(node: Node, ctx: RuleContext) -> Violations:
    if node.op != "Resize" and not ctx.facts(node):
        return  # other rules report attributes that contradict each other
    faults = _resize_faults(node) if node.op == "Resize" else _window_faults(node)
    for axis, extent, why in islice(faults, 1):  # the first fault suffices
        yield Violation({"axis": axis, "extent": extent, "why": why})


def _window_faults(node: Node) -> Iterator[Fault]:
    win = window(node)
    if win is None or win.kernel is None or win.auto_pad in SAME:
        return
    up = bool(query.attribute(node, "ceil_mode", 0))
    for axis, kernel in enumerate(win.kernel):
        extent, stride, dilation = win.extent(axis), win.strides[axis], win.dilations[axis]
        pads = win.pads[axis] if win.auto_pad == "NOTSET" else (0, 0)
        if extent is not None and pool_output(extent, kernel, stride, dilation, pads, ceil=up) < 1:
            reach = effective_kernel(kernel, dilation)
            pad_note = f", with pads of {sum(pads)}" if any(pads) else ""
            yield axis + 2, extent, f"the kernel reaches over {reach}{pad_note}"


def _resize_faults(node: Node) -> Iterator[Fault]:
    dims = query.shape(node.inputs[0])
    scales, sizes = query.constant_input(node, 2), query.constant_input(node, 3)
    factor = scales if scales is not None and scales.size else sizes
    if dims is None or factor is None or factor.size != len(dims):
        return  # unknown scales, or scales of some axes only
    name = "size" if factor is sizes else "scale"
    for axis, (extent, amount) in enumerate(zip(dims, factor.reshape(-1).tolist(), strict=True)):
        if (
            isinstance(extent, int)
            and (amount if factor is sizes else math.floor(extent * amount)) < 1
        ):
            yield axis, extent, f"the {name} is {amount:g}"
