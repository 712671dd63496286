"""Take an axis out of convolutions that have three or more.

An axis goes where the output has one cell along it (its inputs become channels), where
the kernel has one cell along it and along a neighbour (the two are merged), or where
the kernel has one cell along it (it becomes a batch; a stride becomes a Slice). Conv
and ConvTranspose. All other axes are refused, with the reason; but with ``--prefer
slices`` the cells that the taps of a Conv read along an axis become channels, and its output
cells a batch: the same number of MACs, and the input is moved once for each tap. Exact in int8.
"""

from __future__ import annotations

from collections.abc import Sequence

from npuconv.lazy import np
from npuconv.legalize.registry import Log, Phase, TargetDevice, register_pass
from npuconv.legalize.tools.conv_forms import refuses_rank
from npuconv.legalize.tools.layout import TO_THE_END, reshape, transpose
from npuconv.model import Model, Node, Tensor, Window, edit, query, window
from npuconv.model.axis_removal import (
    DEVICE_AXES,
    Removal,
    moved_by,
    obstacles,
    offer,
    removal,
    slicing,
)
from npuconv.model.conv import flat_pads

MOST_MEASURED = 2**25  # most values that the slices of a measured rewrite move: 128 MiB
_BY_AXIS = ("kernel_shape", "strides", "dilations", "output_padding")


@register_pass(
    Phase.LEGALIZE,
    *query.CONVOLUTIONS,
    least_opset=13,
    after=("resolve-auto-pad", "fold-pad"),
    infers=True,
)
def remove_3d_axis(model: Model, device: TargetDevice, log: Log, node: Node) -> int:
    rank = query.rank(query.input_of(node, 1))
    if rank is not None and rank <= DEVICE_AXES + 2:
        return 0  # nearly all; the rest takes longer
    win = window(node)
    if win is None or win.axes is None or win.axes <= DEVICE_AXES or not refuses_rank(device, win):
        return 0
    slices = slicing(win)
    way = removal(win) or (slices if "slices" in device.options.prefer else None)
    if way is None or query.constant_input(node, 1) is None:
        reason = "its weights are not constant"
        if way is None:
            reason = f"no axis can go: {'; '.join(filter(None, [*obstacles(win), offer(win)]))}"
        return log.refuse(model, node, reason)
    remove, text = _WAYS[way.how]
    before = f"{node.op} of {win.axes} axes, kernel {'x'.join(map(str, win.kernel or ()))}"
    after = f"{node.op} of {win.axes - 1} axes: axis {way.axis + 2} goes, {text}"
    moved = moved_by(win, way) if way.how == "slices" else 0
    small = moved <= MOST_MEASURED
    with log.rewrite(model, [node], before, after, exact=_exact(win, way), measure=small) as record:
        if moved:
            warning = "" if small else "; too large a volume to be measured"
            record.note = f"{moved} values moved, as many MACs{warning}"
        result = remove(model, node, win, way)
        edit.replace(result, node)
    return 1


def _exact(win: Window, way: Removal) -> set[int]:
    """Return the axes whose extents the Reshapes contain, which the measurement must keep."""
    axis, last = way.axis + 2, 2 + (win.axes or 0)
    spatial = {a for a in range(2, last) if a != axis}
    if way.how == "merge":
        return {axis - 1} | {a for a in spatial if a > axis}
    if way.how == "batch" and win.input and isinstance(win.input[0], int):
        return spatial
    return spatial | {axis}


def _to_channels(model: Model, node: Node, win: Window, way: Removal) -> Tensor:
    """Turn the cells that the one output cell reads along the axis into channels."""
    axis, dims, source = way.axis + 2, _dims(node, win), node.inputs[0]
    channels, spatial = dims[1] * len(way.cells), [a for a in range(2, len(dims)) if a != axis]
    if way.cells != tuple(range(dims[axis])):
        cells = edit.integers(model, f"{node.name}/cells", way.cells)
        source = edit.insert(model, "Gather", [source, cells], origin=[node], attrs={"axis": axis})
    if len(way.cells) == 1:
        axes = edit.integers(model, f"{node.name}/axis", [axis])
        source = edit.insert(model, "Squeeze", [source, axes], origin=[node])
    elif all(dims[a] for a in spatial):
        source = transpose(model, node, source, [0, 1, axis, *spatial])
        source = reshape(model, node, source, [0, channels, *(dims[a] for a in spatial)])
    else:  # a Reshape keeps leading extents, known or not
        source = transpose(model, node, source, [0, *spatial, 1, axis])
        source = reshape(model, node, source, [0] * (1 + len(spatial)) + [channels])
        last = len(spatial) + 1
        source = transpose(model, node, source, [0, last, *range(1, last)])
    result = _convolve(model, node, source, way.axis, _taps(_weight(node), node.op, way))
    axes = edit.integers(model, f"{node.name}/axis", [axis])
    return edit.insert(model, "Unsqueeze", [result, axes], origin=[node])


def _taps(weight: np.ndarray, op: str, way: Removal) -> np.ndarray:
    """Return weights whose taps along the axis are input channels."""
    first = np.moveaxis(weight, way.axis + 2, 2)  # (O, I/g, k, ...) or (I, O/g, k, ...)
    blank = np.zeros_like(first[:, :, 0])
    taps = [blank if tap is None else first[:, :, tap] for tap in way.taps]
    channel = 0 if op == "ConvTranspose" else 1
    stacked = np.stack(taps, axis=channel + 1)
    shape = list(blank.shape)
    shape[channel] *= len(taps)
    return np.ascontiguousarray(stacked.reshape(shape))


def _merge(model: Model, node: Node, win: Window, way: Removal) -> Tensor:
    """Merge the axis with the one before it: every cell is multiplied alike."""
    _pad_before(model, node, win, (way.axis - 1, way.axis))
    axis, dims, out = way.axis + 2, _dims(node, win), _output_dims(win)
    leading = [0] * (axis - 1)  # 0: a Reshape keeps the extent
    source = reshape(model, node, node.inputs[0], [*leading, -1, *dims[axis + 1 :]])
    result = _convolve(model, node, source, way.axis, _weight(node).squeeze(axis))
    return reshape(model, node, result, [*leading, out[axis - 1], -1, *out[axis + 1 :]])


def _to_batch(model: Model, node: Node, win: Window, way: Removal) -> Tensor:
    """Turn the cells along the axis into samples, and its taps into channels."""
    _pad_before(model, node, win, (way.axis,))
    axis, dims, out = way.axis + 2, _dims(node, win), _output_dims(win)
    kept_axes = [a for a in range(1, len(dims)) if a != axis]
    order, weight = [0, axis, *kept_axes], np.moveaxis(_weight(node), axis, 2)
    if way.how == "slices":  # N, C, D, ... -> N, cells of the result, C, taps, ...
        table = np.asarray(way.cells, np.int64).reshape(weight.shape[2], -1)
        inputs = [node.inputs[0], edit.constant(model, f"{node.name}/cells", table)]
        source = edit.insert(model, "Gather", inputs, origin=[node], attrs={"axis": axis})
        trailing = [a + (a > axis) for a in kept_axes[1:]]
        source = transpose(model, node, source, [0, axis + 1, 1, axis, *trailing])
    else:
        source, step = node.inputs[0], win.strides[way.axis]
        if step > 1:  # the cells that a stride over an axis with one tap reads
            parts = {"starts": 0, "ends": TO_THE_END, "axes": axis, "steps": step}
            bounds = [edit.integers(model, f"{node.name}/{key}", [v]) for key, v in parts.items()]
            source = edit.insert(model, "Slice", [source, *bounds], origin=[node])
        source = transpose(model, node, source, order)
    channels = dims[1] * weight.shape[2]
    source = reshape(model, node, source, [-1, channels, *(dims[a] for a in kept_axes[1:])])
    weight = weight.reshape(len(weight), -1, *weight.shape[3:])
    result = _convolve(model, node, source, way.axis, weight)
    leading = [dims[0], -1] if dims[0] else [-1, out[axis]]
    result = reshape(model, node, result, [*leading, *(out[a] for a in kept_axes)])
    return transpose(model, node, result, np.argsort(order).tolist())


_WAYS = {
    "channels": (_to_channels, "its cells are channels"),
    "merge": (_merge, "merged with the axis before"),
    "batch": (_to_batch, "its cells are a batch"),
    "slices": (_to_batch, "its cells are a batch, what its taps read are channels"),
}


def _pad_before(model: Model, node: Node, win: Window, axes: Sequence[int]) -> None:
    """Let a Pad put in the zeros that the convolution has along these axes."""
    if not any(any(win.pads[axis]) for axis in axes):
        return
    pads, remaining = [(0, 0)] * (2 + len(win.pads)), list(win.pads)
    dims = list(query.shape(node.inputs[0]) or ())
    for axis in axes:
        pads[axis + 2], remaining[axis], extent = win.pads[axis], (0, 0), dims[axis + 2]
        dims[axis + 2] = extent + sum(win.pads[axis]) if isinstance(extent, int) else None
    node.attrs["pads"] = flat_pads(tuple(remaining))
    padding = edit.integers(model, f"{node.name}/pads", flat_pads(tuple(pads)))
    node.inputs[0] = edit.insert(model, "Pad", [node.inputs[0], padding], origin=[node], shape=dims)


def _weight(node: Node) -> np.ndarray:
    weight = query.constant_input(node, 1)
    assert weight is not None
    return weight


def _convolve(model: Model, node: Node, source: Tensor, axis: int, weight: np.ndarray) -> Tensor:
    """Insert the convolution without the axis: of the same kind, over ``source``."""
    edit.set_input(node, 1, edit.constant(model, node.inputs[1].name, weight))
    attrs = dict(node.attrs)
    for name in _BY_AXIS:
        if attrs.get(name):
            attrs[name] = [v for i, v in enumerate(attrs[name]) if i != axis]
    if pads := attrs.get("pads"):
        half = len(pads) // 2
        attrs["pads"] = [v for i, v in enumerate(pads) if i % half != axis]
    inputs = [source, *list(node.inputs)[1:]]
    return edit.insert(model, node.op, inputs, origin=[node], attrs=attrs, name=node.name)


def _dims(node: Node, win: Window) -> list[int]:
    """Return the extents of the input, 0 where not known; the channels follow from the weights."""
    dims = [d if isinstance(d, int) else 0 for d in query.shape(node.inputs[0]) or ()]
    return [win.in_channels or 0 if axis == 1 else d for axis, d in enumerate(dims)]


def _output_dims(win: Window) -> list[int]:
    """Return the extents of the output, computed: inference may not know them."""
    spatial = [win.output_extent(axis) or 0 for axis in range(win.axes or 0)]
    return [0, win.out_channels or 0, *spatial]
