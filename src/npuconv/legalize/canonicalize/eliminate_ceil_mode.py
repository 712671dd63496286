"""Eliminate ceil_mode: pads at the end reach the same cells.

A pool that rounds an extent up lets its last window hang over the edge. Pads at the end make
room for that window: no cell of them is the largest, and an average that does not count its
pads does not count them. Where rounding up and down give the same, nothing is padded.

An average that counts its pads, but not the cells beyond them, gets a Pad in front: integer
kernels divide by the whole window, and ONNX's shape inference before opset 22 counts a last
window that would start in the padding. Needs the extents.
"""

from __future__ import annotations

from npuconv.legalize.registry import Log, Phase, register_pass
from npuconv.model import Model, Node, edit, query, window
from npuconv.model.conv import SAME, Pairs, conv_output, effective_kernel, flat_pads, pool_output

OPSET = 11  # amounts of a Pad are an input since this opset


@register_pass(Phase.CANONICALIZE, *query.POOLS, after=("raise-opset",), infers=True)
def eliminate_ceil_mode(model: Model, log: Log, node: Node) -> int:
    win = window(node)
    if win is None or win.kernel is None or win.auto_pad in SAME or not win.is_consistent:
        return 0
    if not query.attribute(node, "ceil_mode", 0):
        return 0
    counted = win.pads if win.auto_pad == "NOTSET" else ((0, 0),) * len(win.pads)
    pads: Pairs = ()  # with which rounding down gives the cells that rounding up does
    windows = zip(win.kernel, win.strides, win.dilations, counted, strict=True)
    for axis, (kernel, stride, dilation, (begin, end)) in enumerate(windows):
        if (extent := win.extent(axis)) is None:
            return 0
        cells = pool_output(extent, kernel, stride, dilation, (begin, end), ceil=True)
        if conv_output(extent, kernel, stride, dilation, (begin, end)) != cells:
            end = (cells - 1) * stride + effective_kernel(kernel, dilation) - extent - begin
        pads = (*pads, (begin, end))
    # Whether the average counts its own pads, but not the cells that ceil_mode adds.
    counts = node.op == "AveragePool" and bool(query.attribute(node, "count_include_pad", 0))
    counts = counts and any(map(any, counted))
    pads_in_front = counts and pads != counted
    if pads_in_front and model.opset < OPSET:
        return 0
    after = f"ceil_mode=0, pads={flat_pads(pads)}"
    if pads_in_front:
        pads = tuple((0, wide[1] - pair[1]) for wide, pair in zip(pads, counted, strict=True))
        after = f"Pad {flat_pads(counted)} + ceil_mode=0"
    with log.rewrite(model, [node], "ceil_mode=1", after, modulus=None):
        if pads_in_front:
            flat = flat_pads(((0, 0), (0, 0), *counted))
            amounts = edit.integers(model, f"{node.name}/pads", flat)
            padded = edit.insert(model, "Pad", [node.inputs[0], amounts], origin=[node])
            edit.set_input(node, 0, padded)
        node.attrs |= {"ceil_mode": 0, "auto_pad": "NOTSET", "pads": flat_pads(pads)}
        if node.op == "AveragePool" and (pads_in_front or not counts):
            node.attrs["count_include_pad"] = 0
    return 1
