"""Tests of the arithmetic of one axis of a transposed convolution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv.legalize.tools.subpixel import Axis, sub_pixel, zero_insertion
from npuconv.model.conv import Window


def one_axis(
    kernel: int, stride: int, dilation: int = 1, pads: tuple[int, int] = (0, 0), extra: int = 0
) -> Window:
    return Window(
        op="ConvTranspose",
        kernel=(kernel,),
        strides=(stride,),
        dilations=(dilation,),
        pads=(pads,),
        auto_pad="NOTSET",
        group=1,
        weight=(1, 1, kernel),
        input=None,
        output=None,
        output_padding=(extra,),
        output_shape=None,
    )


def by_the_text(win: Window, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The output as ONNX describes it: every cell spreads the kernel, then pads are cut off."""
    (kernel,), (stride,), (dilation,) = win.kernel or (), win.strides, win.dilations
    (begin, end), (extra,) = win.pads[0], win.output_padding
    full = np.zeros(stride * (len(x) - 1) + (kernel - 1) * dilation + 1 + extra, x.dtype)
    for cell, value in enumerate(x):
        for tap in range(kernel):
            full[cell * stride + tap * dilation] += value * w[tap]
    return full[begin : len(full) - end]


def by_the_plan(axis: Axis, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The output of the convolution with its phases side by side, cropped."""
    stretched = np.zeros(len(x) * axis.stretch, x.dtype)
    stretched[:: axis.stretch] = x
    padded = np.pad(stretched, axis.pads)
    result = [
        sum(
            padded[cell + u * axis.dilation] * (0 if tap is None else w[tap])
            for u, tap in enumerate(phase)
        )
        for cell in range(axis.cells(len(x)))
        for phase in axis.taps
    ]
    return np.array(result[axis.crop[0] : len(result) - axis.crop[1]], x.dtype)


@given(st.data())
def test_both_forms_are_what_onnx_describes(data: st.DataObject):
    """Any kernel, stride, dilation, pads and output_padding that leave a cell."""
    kernel, stride = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 5))
    dilation, extent = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5))
    reach = (kernel - 1) * dilation + 1
    extra = data.draw(st.integers(0, max(stride, dilation)))
    cells = stride * (extent - 1) + reach + extra
    begin = data.draw(st.integers(0, cells - 1))
    end = data.draw(st.integers(0, cells - 1 - begin))
    win = one_axis(kernel, stride, dilation, (begin, end), extra)
    rng = np.random.default_rng(0)
    x, w = rng.integers(1, 9, extent), rng.integers(1, 9, kernel)
    wanted = by_the_text(win, x, w)
    for form in (sub_pixel, zero_insertion):
        axis = form(win, 0)
        assert min(axis.pads) >= 0
        assert min(axis.crop) >= 0
        assert by_the_plan(axis, x, w).tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("kernel", "stride", "pads", "taps", "crop"),
    [
        (2, 2, (0, 0), 1, (0, 0)),  # the usual upsampling: nothing is wasted
        (4, 2, (1, 1), 2, (1, 1)),  # two taps and a crop, not three taps without
        (3, 2, (0, 1), 2, (0, 0)),
        (3, 1, (1, 1), 3, (0, 0)),  # stride 1: the kernel turned around
        (1, 3, (0, 0), 1, (0, 2)),  # phases without a tap are zero
    ],
)
def test_the_smallest_kernel_is_taken(kernel, stride, pads, taps, crop):
    """Then the smallest crop."""
    axis = sub_pixel(one_axis(kernel, stride, 1, pads), 0)
    assert (axis.kernel, axis.crop, axis.phases) == (taps, crop, stride)


def test_stride_1_keeps_the_dilation():
    """No zeros are written into the kernel there."""
    axis = sub_pixel(one_axis(3, 1, 2, (1, 1)), 0)
    assert axis == Axis(((2, 1, 0),), 2, (3, 3), (0, 0))
