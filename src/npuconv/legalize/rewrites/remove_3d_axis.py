"""Take an axis out of convolutions that have three or more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npuconv.legalize.registry import Phase, model_pass
from npuconv.legalize.tools.conv_forms import refuses_rank
from npuconv.legalize.tools.layout import reshape, transpose
from npuconv.model import edit, query
from npuconv.model.axis_removal import Removal, obstacles, output_extent, removal
from npuconv.model.conv import window

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from npuconv.legalize.context import PassContext
    from npuconv.model.axis_removal import Removal
    from npuconv.model.conv import Window
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor

MOST_AXES = 2
_WAYS = {
    "channels": "its cells are channels",
    "merge": "merged with the axis before",
    "batch": "its cells are a batch",
}


@model_pass(Phase.LEGALIZE, after=("resolve-auto-pad", "fold-pad"), infers=True)
def remove_3d_axis(model: Model, ctx: PassContext) -> int:
    """Take an axis out of convolutions that have three or more.

    An axis goes where the output has one cell along it (its inputs become channels), where
    the kernel has one cell along it and along a neighbour (the two are merged), or where
    the kernel has one cell along it (it becomes a batch; a stride becomes a Slice). Conv
    and ConvTranspose. All other axes are refused, with what keeps them.
    """
    if model.opset < 13:
        return 0
    return sum(_remove(model, ctx, node) for node in model.nodes(*query.CONVOLUTIONS))


def _remove(model: Model, ctx: PassContext, node: Node) -> int:
    rank = query.rank(query.input_of(node, 1))
    if rank is not None and rank <= MOST_AXES + 2:
        return 0  # nearly all; what follows takes longer
    win = window(node)
    if win is None or win.axes is None or win.axes <= MOST_AXES or not refuses_rank(ctx, win):
        return 0
    way = removal(win)
    reason = _obstacle(node)
    if way is None:
        reason = "no axis can go: " + "; ".join(obstacles(win))
    if reason or way is None:
        ctx.refuse(model, node, reason)
        return 0
    before = f"{node.op} of {win.axes} axes, kernel {'x'.join(map(str, win.kernel or ()))}"
    after = f"{node.op} of {win.axes - 1} axes: axis {way.axis + 2} goes, {_WAYS[way.how]}"
    with ctx.rewrite(model, [node], before, after, exact=_exact(win, way)):
        _replace(model, node, way)
    return 1


def _exact(win: Window, way: Removal) -> set[int]:
    """Axes whose extents the Reshapes contain: what is measured must have them."""
    axis, last = way.axis + 2, 2 + (win.axes or 0)
    others = {a for a in range(2, last) if a != axis}
    if way.how == "merge":
        return {axis - 1} | {a for a in others if a > axis}
    if way.how == "batch":
        return others if win.input and isinstance(win.input[0], int) else others | {axis}
    return others | {axis}


def _obstacle(node: Node) -> str:
    if query.constant_input(node, 1) is None:
        return "its weights are not constant"
    return ""


def _replace(model: Model, node: Node, way: Removal) -> None:
    take_out = {"channels": _to_channels, "merge": _merge, "batch": _to_batch}
    take_out[way.how](model, node, way)


_LISTS = ("kernel_shape", "strides", "dilations", "output_padding")


def _to_channels(model: Model, node: Node, way: Removal) -> None:
    """Turn the cells that the one output cell reads along the axis into channels."""
    axis = way.axis + 2
    source = _selected(model, node, way)
    if len(way.cells) == 1:
        axes = edit.integers(model, f"{node.name}/axis", [axis])
        source = edit.insert(model, "Squeeze", [source, axes], origin=[node])
    else:
        source = _channels_of(model, node, source, axis, len(way.cells))
    weight = query.constant_input(node, 1)
    assert weight is not None
    edit.set_input(node, 1, edit.constant(model, node.inputs[1].name, _taps(weight, node, way)))
    result = _run(model, node, source, way.axis)
    axes = edit.integers(model, f"{node.name}/axis", [axis])
    _finish(node, edit.insert(model, "Unsqueeze", [result, axes], origin=[node]))


def _selected(model: Model, node: Node, way: Removal) -> Tensor:
    """The cells along the axis that are read at all."""
    source, axis = node.inputs[0], way.axis + 2
    if way.cells == tuple(range(_dims(node)[axis])):
        return source
    cells = edit.integers(model, f"{node.name}/cells", way.cells)
    return edit.insert(model, "Gather", [source, cells], origin=[node], attrs={"axis": axis})


def _channels_of(model: Model, node: Node, source: Tensor, axis: int, count: int) -> Tensor:
    """N, C, ..., D, ... -> N, C * D, ... with whatever extents are unknown."""
    dims = _dims(node)
    rest = [a for a in range(2, len(dims)) if a != axis]
    if all(dims[a] for a in rest):
        source = transpose(model, node, source, [0, 1, axis, *rest])
        return reshape(model, node, source, [0, dims[1] * count, *(dims[a] for a in rest)])
    source = transpose(model, node, source, [0, *rest, 1, axis])
    source = reshape(model, node, source, [0] * (1 + len(rest)) + [dims[1] * count])
    last = len(rest) + 1
    return transpose(model, node, source, [0, last, *range(1, last)])


def _taps(weight: np.ndarray, node: Node, way: Removal) -> np.ndarray:
    """Weights whose taps along the axis are input channels."""
    import numpy as np

    first = np.moveaxis(weight, way.axis + 2, 2)  # (O, I/g, k, ...) or (I, O/g, k, ...)
    blank = np.zeros_like(first[:, :, 0])
    each = [blank if tap is None else first[:, :, tap] for tap in way.taps]
    channel = 0 if node.op == "ConvTranspose" else 1
    stacked = np.stack(each, axis=channel + 1)
    shape = list(blank.shape)
    shape[channel] *= len(each)
    return np.ascontiguousarray(stacked.reshape(shape))


def _merge(model: Model, node: Node, way: Removal) -> None:
    """The axis and the one before it are one: every cell is multiplied alike."""
    _pad_before(model, node, (way.axis - 1, way.axis))
    axis, dims, out = way.axis + 2, _dims(node), _out(node)
    leading = [0] * (axis - 1)  # as they are
    source = reshape(model, node, node.inputs[0], [*leading, -1, *dims[axis + 1 :]])
    _drop_kernel_axis(model, node, way.axis)
    result = _run(model, node, source, way.axis)
    _finish(node, reshape(model, node, result, [*leading, out[axis - 1], -1, *out[axis + 1 :]]))


def _to_batch(model: Model, node: Node, way: Removal) -> None:
    """The cells along the axis are so many samples."""
    _pad_before(model, node, (way.axis,))
    axis, dims, out = way.axis + 2, _dims(node), _out(node)
    rest = [a for a in range(1, len(dims)) if a != axis]
    source = _strided(model, node, axis)
    source = transpose(model, node, source, [0, axis, *rest])
    source = reshape(model, node, source, [-1, *(dims[a] for a in rest)])
    _drop_kernel_axis(model, node, way.axis)
    result = _run(model, node, source, way.axis)
    apart = [dims[0], -1] if dims[0] else [-1, out[axis]]
    result = reshape(model, node, result, [*apart, *(out[a] for a in rest)])
    order = [0, axis, *rest]  # where each axis came from
    _finish(node, transpose(model, node, result, [order.index(a) for a in range(len(dims))]))


def _pad_before(model: Model, node: Node, axes: Sequence[int]) -> None:
    """Let a Pad put in the zeros that the convolution has along these axes."""
    pads = list(query.attribute(node, "pads") or ())
    half = len(pads) // 2
    if not any(pads[axis] or pads[axis + half] for axis in axes if pads):
        return
    amounts = [0] * (2 * (half + 2))
    dims = list(query.shape(node.inputs[0]) or ())
    for axis in axes:
        begin, end = pads[axis], pads[axis + half]
        amounts[axis + 2], amounts[axis + half + 4] = begin, end
        extent = dims[axis + 2]
        dims[axis + 2] = extent + begin + end if isinstance(extent, int) else None
        pads[axis] = pads[axis + half] = 0
    node.attrs["pads"] = pads
    wanted = edit.integers(model, f"{node.name}/pads", amounts)
    node.inputs[0] = edit.insert(model, "Pad", [node.inputs[0], wanted], origin=[node], shape=dims)


def _strided(model: Model, node: Node, axis: int) -> Tensor:
    """A stride over an axis with one tap only leaves cells out."""
    import numpy as np

    step = int(query.attribute(node, "strides", [1] * axis)[axis - 2])
    if step == 1:
        return node.inputs[0]
    parts = [[0], [np.iinfo(np.int64).max], [axis], [step]]
    names = ("starts", "ends", "axes", "steps")
    pairs = zip(names, parts, strict=True)
    tensors = [edit.integers(model, f"{node.name}/{name}", values) for name, values in pairs]
    return edit.insert(model, "Slice", [node.inputs[0], *tensors], origin=[node])


def _drop_kernel_axis(model: Model, node: Node, axis: int) -> None:
    import numpy as np

    weight = query.constant_input(node, 1)
    assert weight is not None
    flat = np.squeeze(weight, axis + 2)
    edit.set_input(node, 1, edit.constant(model, node.inputs[1].name, flat))


def _run(model: Model, node: Node, source: Tensor, axis: int) -> Tensor:
    """The convolution without the axis: of the same kind, over ``source``."""
    attrs = dict(node.attrs)
    for name in _LISTS:
        if attrs.get(name):
            attrs[name] = [v for i, v in enumerate(attrs[name]) if i != axis]
    if pads := attrs.get("pads"):
        half = len(pads) // 2
        attrs["pads"] = [v for i, v in enumerate(pads) if i % half != axis]
    inputs = [source, *list(node.inputs)[1:]]
    return edit.insert(model, node.op, inputs, origin=[node], attrs=attrs, name=node.name)


def _finish(node: Node, result: Tensor) -> None:
    edit.hand_over(result, node.outputs[0])
    edit.disconnect(node)


def _dims(node: Node) -> list[int]:
    """Extents of the input, 0 where not known; channels are, as the weights tell them."""
    win, dims = window(node), query.shape(node.inputs[0]) or ()
    channels = win.in_channels if win is not None else None
    known = [d if isinstance(d, int) else 0 for d in dims]
    return [channels or 0 if axis == 1 else d for axis, d in enumerate(known)]


def _out(node: Node) -> list[int]:
    """Extents of the output, worked out: inference may not have told them."""
    win = window(node)
    assert win is not None
    spatial = [output_extent(win, axis) or 0 for axis in range(win.axes or 0)]
    return [0, win.out_channels or 0, *spatial]
