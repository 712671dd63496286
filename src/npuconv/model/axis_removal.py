"""Removal of one axis of a convolution of three or more axes.

If the output has one cell along an axis, its input cells become channels. If the kernel has
one cell along it, the axis becomes part of the batch, or is merged with a neighbour of the
same kind. Any axis has one cell along it once the slices that its taps read are channels.
"""

from __future__ import annotations

import math
from typing import Literal

from npuconv.model import Window
from npuconv.records import dataclass

DEVICE_AXES = 2  # spatial axes of an accelerator for images


@dataclass(frozen=True)
class Removal:
    """Method to remove one spatial axis (counted from 0).

    For ``channels``: the cell of the output reads input cell ``cells[i]`` with tap
    ``taps[i]`` of the kernel; a tap of None is a zero.
    """

    axis: int
    how: Literal["channels", "merge", "batch", "slices"]
    cells: tuple[int, ...] = ()
    taps: tuple[int | None, ...] = ()


def removal(win: Window) -> Removal | None:
    """Return the cheapest removal of one axis, or None.

    Channels are free, a merge is one Reshape, a batch takes Transposes as well.
    """
    axes = range(win.axes or 0)
    removals = list[Removal]()
    for axis in axes:
        if win.output_extent(axis) == 1:
            cells, taps = zip(*(_pairs(win, axis) or [(0, None)]), strict=True)
            removals.append(Removal(axis, "channels", cells, taps))
    if all(win.extent(axis) is not None for axis in axes):
        # The last two axes first: they can be merged for any extents before them.
        pointwise = [axis for axis in axes if _is_pointwise(win, axis)]
        neighbours = [axis for axis in reversed(pointwise) if axis - 1 in pointwise]
        removals += [Removal(axis, "merge") for axis in neighbours]
        batches = (axis for axis in axes if _is_pointwise(win, axis, stride=True))
        removals += [Removal(axis, "batch") for axis in batches]
    return removals[0] if removals else None


def slicing(win: Window) -> Removal | None:
    """Return the axis with the fewest taps, whose cells the taps read are ``cells``, tap by tap.

    Of a Conv whose extents are all known; cells are counted with the pads. It moves the input
    once for each tap, so it is used only on request.
    """
    axes = range(win.axes or 0)
    extents = [win.output_extent(axis) for axis in axes]
    if win.op != "Conv" or win.kernel is None or not all(extents):
        return None
    axis = min(axes, key=win.kernel.__getitem__)
    starts = [tap * win.dilations[axis] for tap in range(win.kernel[axis])]
    steps = [cell * win.strides[axis] for cell in range(extents[axis] or 0)]
    return Removal(axis, "slices", tuple(first + step for first in starts for step in steps))


def moved_by(win: Window, way: Removal) -> int:
    """Return the values that the cells of a removal hold; of one sample where the batch is open."""
    lengths = [d for axis, d in enumerate(win.input or ()) if axis != way.axis + 2]
    return len(way.cells) * math.prod(d for d in lengths if isinstance(d, int))


def offer(win: Window) -> str:
    """Return the effect of ``--prefer slices`` where no axis can be removed, with its copies."""
    way = slicing(win)
    if way is None or win.kernel is None:
        return ""
    taps = f"the {win.kernel[way.axis]} taps of axis {way.axis + 2}"
    return f"--prefer slices would make {taps} channels and copy {moved_by(win, way):,} values"


def obstacles(win: Window) -> list[str]:
    """Return a description of every axis if none of three or more can be removed; else nothing."""
    if (win.axes or 0) <= DEVICE_AXES or removal(win):
        return []
    return [f"axis {axis + 2} ({_describe(win, axis)})" for axis in range(win.axes or 0)]


def _describe(win: Window, axis: int) -> str:
    kernel = win.kernel[axis] if win.kernel else "?"
    parts = [f"kernel {kernel}", f"stride {win.strides[axis]}"]
    if any(win.pads[axis]):
        parts.append(f"pads {win.pads[axis][0]} and {win.pads[axis][1]}")
    extent = win.extent(axis)
    return ", ".join([*parts, f"extent {extent if extent is not None else 'unknown'}"])


def _pairs(win: Window, axis: int) -> list[tuple[int, int | None]]:
    """Return (cell, tap) of every term of the sum in the only output cell."""
    extent, begin, dilation = win.extent(axis) or 0, win.pads[axis][0], win.dilations[axis]
    taps = range(win.kernel[axis] if win.kernel else 0)
    if win.op == "ConvTranspose":
        stride = win.strides[axis]
        by_position = {tap * dilation: tap for tap in taps}
        reads = [(cell, by_position.get(begin - cell * stride)) for cell in range(extent)]
        return [(cell, tap) for cell, tap in reads if tap is not None]
    reads = [(tap * dilation - begin, tap) for tap in taps]
    return [(cell, tap) for cell, tap in reads if 0 <= cell < extent]


def _is_pointwise(win: Window, axis: int, *, stride: bool = False) -> bool:
    """Return whether the kernel along the axis is 1, without a stride unless ``stride``.

    A Conv may have pads, which can become a Pad before it; a ConvTranspose may not: its pads crop.
    """
    explicit = win.auto_pad == "NOTSET" and not win.output_shape and win.kernel is not None
    padded = win.op == "Conv" or (win.pads[axis] == (0, 0) and win.output_padding[axis] == 0)
    steps = win.strides[axis] == 1 or (stride and win.op == "Conv")
    return explicit and padded and steps and win.kernel is not None and win.kernel[axis] == 1
