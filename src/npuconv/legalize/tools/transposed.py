"""The parts a transposed convolution is made of: weights, phases side by side, the crop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from npuconv.model import edit, query
from npuconv.model.conv import flat_pads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npuconv.legalize.tools.subpixel import Axis
    from npuconv.model.conv import Window
    from npuconv.model.core import Model
    from npuconv.model.types import Node, Tensor

FOREVER = np.iinfo(np.int64).max  # as the end of a Slice: to the end, whatever the extent


def weights(array: np.ndarray, group: int, axes: tuple[Axis, Axis]) -> np.ndarray:
    """The weights of the convolution.

    Args:
        array: of the ConvTranspose, float32, C x M/group x kH x kW.
        group: number of groups.
        axes: what becomes of height and width.

    Returns:
        float32, (M * phases of height * phases of width) x C/group x taps x taps, the
        phases of one channel beside each other.
    """
    inputs, outputs = array.shape[0] // group, array.shape[1]
    grouped = array.reshape(group, inputs, outputs, *array.shape[2:])
    padded = np.pad(grouped, [(0, 0)] * 3 + [(0, 1)] * 2)  # index k is a zero
    rows, columns = (_indices(axis, array.shape[2 + i]) for i, axis in enumerate(axes))
    taps = padded[..., rows[:, :, None, None], columns[None, None]]
    # group, C/group, M/group, phases, taps, phases, taps
    moved = taps.transpose(0, 2, 3, 5, 1, 4, 6)
    return np.ascontiguousarray(moved.reshape(-1, inputs, *moved.shape[-2:]))


def _indices(axis: Axis, extent: int) -> np.ndarray:
    return np.array([[extent if tap is None else tap for tap in phase] for phase in axis.taps])


def convolve(
    model: Model, node: Node, old: Window, new: Window, axes: tuple[Axis, Axis], source: Tensor
) -> Tensor:
    """The convolution; its bias is repeated for each phase."""
    array, bias = query.constant_input(node, 1), query.constant_input(node, 2)
    assert array is not None
    inputs = [
        source,
        edit.constant(model, f"{node.name}/weight", weights(array, old.group, axes)),
    ]
    if bias is not None:
        repeated = np.repeat(bias, axes[0].phases * axes[1].phases)
        inputs.append(edit.constant(model, f"{node.name}/bias", repeated))
    attrs = {
        "auto_pad": "NOTSET",
        "dilations": list(new.dilations),
        "group": new.group,
        "kernel_shape": list(new.kernel or ()),
        "pads": flat_pads(new.pads),
        "strides": list(new.strides),
    }
    return edit.insert(model, "Conv", inputs, origin=[node], shape=new.output, attrs=attrs)


def side_by_side(
    model: Model, node: Node, win: Window, phases: tuple[int, int], result: Tensor
) -> Tensor:
    """Put the phases that are channels where their cells are."""
    if phases == (1, 1):
        return result
    if phases[0] == phases[1]:
        attrs = {"blocksize": phases[0], "mode": "CRD"}
        return edit.insert(model, "DepthToSpace", [result], origin=[node], attrs=attrs)
    assert win.output is not None
    channels = int(win.output[1] or 0) // (phases[0] * phases[1])
    extents = win.output[2:]
    if all(isinstance(d, int) for d in extents):
        return _interleave(model, node, result, channels, phases, [int(d or 0) for d in extents])
    return _one_axis_at_a_time(model, node, result, channels, phases)


def _interleave(
    model: Model,
    node: Node,
    result: Tensor,
    channels: int,
    phases: tuple[int, int],
    extents: Sequence[int],
) -> Tensor:
    """N, (C, rH, rW), H, W -> N, C, (H, rH), (W, rW) with known H and W."""
    apart = [0, channels, *phases, *extents]
    result = _reshape(model, node, result, apart)
    result = _transpose(model, node, result, [0, 1, 4, 2, 5, 3])
    whole = [extent * phase for extent, phase in zip(extents, phases, strict=True)]
    return _reshape(model, node, result, [0, channels, *whole])


def _one_axis_at_a_time(
    model: Model, node: Node, result: Tensor, channels: int, phases: tuple[int, int]
) -> Tensor:
    """The same with unknown H and W: a Reshape can keep leading extents and find one."""
    rows, columns = phases
    result = _transpose(model, node, result, [0, 2, 3, 1])
    result = _reshape(model, node, result, [0, 0, 0, channels * rows, columns])
    result = _transpose(model, node, result, [0, 1, 2, 4, 3])
    result = _reshape(model, node, result, [0, 0, -1, channels * rows])  # N, H, (W, rW), (C, rH)
    if rows == 1:
        return _transpose(model, node, result, [0, 3, 1, 2])
    result = _transpose(model, node, result, [0, 2, 1, 3])
    result = _reshape(model, node, result, [0, 0, 0, channels, rows])
    result = _transpose(model, node, result, [0, 1, 2, 4, 3])
    result = _reshape(model, node, result, [0, 0, -1, channels])  # N, (W, rW), (H, rH), C
    return _transpose(model, node, result, [0, 3, 2, 1])


def insert_zeros(model: Model, node: Node, win: Window, stretch: int) -> Tensor:
    """Zeros behind each cell: as channels that are zero, which DepthToSpace spreads out."""
    source = node.inputs[0]
    channels = (win.in_channels or 0) * (stretch * stretch - 1)
    amounts = edit.integers(model, f"{node.name}/zeros", [0] * 5 + [channels, 0, 0])
    padded = edit.insert(model, "Pad", [source, amounts], origin=[node])
    attrs = {"blocksize": stretch, "mode": "DCR"}
    return edit.insert(model, "DepthToSpace", [padded], origin=[node], attrs=attrs)


def crop(model: Model, node: Node, axes: tuple[Axis, Axis], result: Tensor) -> Tensor:
    """Cut off what the pads of the ConvTranspose cut off."""
    wanted = [(i + 2, axis.crop) for i, axis in enumerate(axes) if any(axis.crop)]
    if not wanted:
        return result
    parts = {
        "starts": [begin for _, (begin, _) in wanted],
        "ends": [-end if end else FOREVER for _, (_, end) in wanted],
        "axes": [axis for axis, _ in wanted],
    }
    tensors = [edit.integers(model, f"{node.name}/{key}", v) for key, v in parts.items()]
    return edit.insert(model, "Slice", [result, *tensors], origin=[node])


def _reshape(model: Model, node: Node, source: Tensor, shape: Sequence[int]) -> Tensor:
    wanted = edit.integers(model, f"{node.name}/shape", shape)
    return edit.insert(model, "Reshape", [source, wanted], origin=[node])


def _transpose(model: Model, node: Node, source: Tensor, perm: Sequence[int]) -> Tensor:
    attrs = {"perm": list(perm)}
    return edit.insert(model, "Transpose", [source], origin=[node], attrs=attrs)
