"""One spatial axis of a transposed convolution as a convolution. Pure integers.

With ``e = (k - 1) * d + 1`` a ConvTranspose computes, before anything is cut off,

    full[f] = sum over i, t with i * s + t = f of  x[i] * w[t],   0 <= t < e

(``w[t]`` is 0 where the dilation skips ``t``) and its output is ``y[o] = full[o + begin]``.
Let ``o + c = q * s + r`` with a crop ``c`` to be chosen. Then ``t = m * s + r + begin - c``
with ``m = q - i``: for each phase ``r`` a plain convolution over ``x`` with taps ``m``, and
the phases of a cell lie side by side, which is what DepthToSpace undoes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from npuconv.model.conv import effective_kernel

if TYPE_CHECKING:
    from npuconv.model.conv import Window


@dataclass(frozen=True)
class Axis:
    """One spatial axis of a transposed convolution as an axis of a convolution.

    ``taps[phase][u]`` is the index of the original weight that tap ``u`` of that phase
    holds, or None for a zero.
    """

    taps: tuple[tuple[int | None, ...], ...]
    dilation: int
    pads: tuple[int, int]
    crop: tuple[int, int]  # cells cut off the result, the phases side by side
    stretch: int = 1  # zeros are put between the cells: so many cells for each one

    @property
    def phases(self) -> int:
        """Cells of the result that one cell of the convolution holds."""
        return len(self.taps)

    @property
    def kernel(self) -> int:
        """Extent of the convolution's kernel."""
        return len(self.taps[0])

    def cells(self, extent: int) -> int:
        """Cells of the convolution's output for an input of this extent."""
        reach = effective_kernel(self.kernel, self.dilation)
        return extent * self.stretch + sum(self.pads) - reach + 1


def sub_pixel(win: Window, axis: int) -> Axis:
    """The axis with one phase for each cell of a stride; no zero is multiplied in between."""
    stride = win.strides[axis]
    if stride == 1:
        return _in_place(win, axis, 1)
    plans = [_phased(win, axis, crop) for crop in range(stride)]
    return min(plans, key=lambda plan: (plan.kernel, sum(plan.crop)))


def zero_insertion(win: Window, axis: int) -> Axis:
    """The axis with ``s - 1`` zeros behind each cell, as the operator's text describes it."""
    return _in_place(win, axis, win.strides[axis])


def _in_place(win: Window, axis: int, stretch: int) -> Axis:
    """A convolution with the kernel turned around, dilation and all."""
    assert win.kernel is not None
    kernel, dilation = win.kernel[axis], win.dilations[axis]
    begin, end = win.pads[axis]
    reach = effective_kernel(kernel, dilation)
    pads = (reach - 1 - begin, reach - stretch - end + win.output_padding[axis])
    taps = (tuple(range(kernel - 1, -1, -1)),)
    return _clamped(Axis(taps, dilation, pads, (0, 0), stretch))


def _phased(win: Window, axis: int, crop: int) -> Axis:
    assert win.kernel is not None
    stride, dilation = win.strides[axis], win.dilations[axis]
    begin, end = win.pads[axis]
    reach = effective_kernel(win.kernel[axis], dilation)
    shift = begin - crop
    first, last = -((stride - 1 + shift) // stride), (reach - 1 - shift) // stride
    taps = tuple(
        tuple(_tap(m * stride + phase + shift, reach, dilation) for m in range(last, first - 1, -1))
        for phase in range(stride)
    )
    # The output has stride * (in - 1) + beyond cells; so many cells of phases hold them.
    beyond = reach + win.output_padding[axis] - begin - end + crop
    cells = -(-beyond // stride)
    pads = (last, cells - 1 - first)
    return _clamped(Axis(taps, 1, pads, (crop, cells * stride - beyond)))


def _tap(position: int, reach: int, dilation: int) -> int | None:
    inside = 0 <= position < reach and position % dilation == 0
    return position // dilation if inside else None


def _clamped(plan: Axis) -> Axis:
    """Less than no padding becomes none, and what is then too much is cut off."""
    begin, end = plan.pads
    more = tuple(max(-pad, 0) * plan.phases for pad in plan.pads)
    crop = (plan.crop[0] + more[0], plan.crop[1] + more[1])
    return Axis(plan.taps, plan.dilation, (max(begin, 0), max(end, 0)), crop, plan.stretch)
