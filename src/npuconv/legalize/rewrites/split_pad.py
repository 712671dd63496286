"""Split a Pad that crops or repeats cells.

Negative amounts become a Slice, which passes int8 on; positive amounts are padded
after it. Cells that `edge` and `wrap` repeat become Slice and Concat where the target takes these
and no such Pad, and for TFLite, which has none.

ONNX does not define whether reflect, edge and wrap read cells that the other end of
the same axis crops, so such a Pad is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.legalize.tools.layout import TO_THE_END
from npuconv.model import Model, Node, Tensor, edit, query
from npuconv.model.conv import Pairs, flat_pads
from npuconv.partition.operators import takes_as

OPSET = 11  # the opset since which amounts are an input, as the bounds of a Slice are


@register_pass(Phase.LEGALIZE, "Pad", least_opset=OPSET, after=("resolve-auto-pad",), infers=True)
def split_pad(model: Model, device: TargetDevice, log: Log, node: Node) -> int:
    amounts = query.pad_amounts(node)
    dims = query.shape(node.inputs[0])
    if amounts is None or (dims is not None and len(dims) != len(amounts)):
        return 0
    if any(min(pair) < 0 for pair in amounts):
        reason = _cannot_crop(node, amounts, dims)
        if not reason:
            return _crop(model, log, node, amounts)
        return log.refuse(model, node, reason)
    if query.pad_mode(node) in ("edge", "wrap") and dims is not None and any(map(any, amounts)):
        return _repeat(model, device, log, node, amounts, dims)
    return 0


def _cannot_crop(node: Node, amounts: Pairs, dims: tuple[int | str | None, ...] | None) -> str:
    """Return why negative amounts are not the same as a Slice, or ''."""
    mode = query.pad_mode(node)
    if mode != "constant" and any(min(pair) < 0 < max(pair) for pair in amounts):
        return f"it crops one end of an axis and fills the other with mode {mode!r}"
    for axis, (pair, extent) in enumerate(zip(amounts, dims or (), strict=False)):
        cropped = -sum(min(amount, 0) for amount in pair)
        if isinstance(extent, int) and cropped >= extent:
            return f"it crops all {extent} cells of axis {axis}"
    return ""


def _crop(model: Model, log: Log, node: Node, amounts: Pairs) -> int:
    growth = tuple((max(begin, 0), max(end, 0)) for begin, end in amounts)
    sliced = [axis for axis, pair in enumerate(amounts) if min(pair) < 0]
    starts = [max(-amounts[axis][0], 0) for axis in sliced]
    stops = [min(amounts[axis][1], 0) or TO_THE_END for axis in sliced]
    after = f"Slice of axes {sliced}"
    after += f" + Pad {flat_pads(growth)}" if any(map(any, growth)) else ""
    dims = query.shape(node.inputs[0])
    # A random extent might be less than is cropped.
    are_known = dims is not None and all(isinstance(dims[axis], int) for axis in sliced)
    reason = "" if are_known else "the extents it crops are not known"
    before = f"Pad {flat_pads(amounts)}"
    with log.rewrite(model, [node], before, after, modulus=None, unmeasured=reason):
        bounds = [edit.integers(model, f"{node.name}/bounds", v) for v in (starts, stops, sliced)]
        inputs = [node.inputs[0], *bounds]
        if any(map(any, growth)):
            edit.set_input(node, 0, edit.insert(model, "Slice", inputs, origin=[node]))
            edit.set_input(node, 1, edit.integers(model, f"{node.name}/pads", flat_pads(growth)))
            edit.drop_inputs(node, 3)
        else:
            crop = edit.add_node(model, "Slice", inputs, [], origin=[node])
            edit.take_over_outputs(node, crop)
    return 1


def _repeat(
    model: Model,
    device: TargetDevice,
    log: Log,
    node: Node,
    amounts: Pairs,
    dims: Sequence[int | str | None],
) -> int:
    """Write a Pad that repeats cells as Slice and Concat, where the device or the form lacks it."""
    fits, mode = takes_as("Pad", node, device.target), query.pad_mode(node)
    moves = all(device.target.operator(op) is not None for op in ("Slice", "Concat"))
    if device.options.format != "tflite" and (fits or not moves):
        return 0
    extents = [dim if isinstance(dim, int) else 0 for dim in dims]
    if mode == "wrap" and any(max(p) > dim for p, dim in zip(amounts, extents, strict=True)):
        return log.refuse(model, node, "it wraps around more cells than an axis is known to have")
    before, result = f"Pad {flat_pads(amounts)} of mode {mode}", node.inputs[0]
    with log.rewrite(model, [node], before, "Slice + Concat", modulus=None):
        for axis, (begin, end) in enumerate(amounts):
            repeated = [(0, 1, begin), (-1, TO_THE_END, end)]  # start and end of cells, how often
            if mode == "wrap":
                repeated = [(-begin, TO_THE_END, min(begin, 1)), (0, end, min(end, 1))]
            first, last = (
                [_sliced(model, node, result, start, stop, axis)] * times if times else []
                for start, stop, times in repeated
            )
            if first or last:
                parts = [*first, result, *last]
                result = edit.insert(model, "Concat", parts, origin=[node], attrs={"axis": axis})
        edit.replace(result, node)
    return 1


def _sliced(model: Model, node: Node, x: Tensor, start: int, stop: int, axis: int) -> Tensor:
    bounds = [edit.integers(model, f"{node.name}/bounds", [v]) for v in (start, stop, axis)]
    return edit.insert(model, "Slice", [x, *bounds], origin=[node])
