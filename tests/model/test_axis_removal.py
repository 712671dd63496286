"""Removal of one axis of a convolution."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuconv.model.axis_removal import obstacles, removal
from npuconv.model.conv import Window, window
from support.asserts import read
from support.builders import Net


def volume(x, weight, **attrs) -> Window:
    model = read(Net(x=x).conv("x", weight, **attrs).model())
    found = window(model.nodes()[0])
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("x", "kernel", "attrs", "axis", "how"),
    [
        ((1, 4, 3, 6, 6), (3, 3, 3), {}, 0, "channels"),
        ((1, 4, 6, 6, 3), (3, 3, 3), {}, 2, "channels"),
        ((1, 4, 1, 6, 6), (1, 1, 1), {}, 0, "channels"),
        ((1, 4, 5, 6, 6), (1, 1, 1), {}, 2, "merge"),
        ((1, 4, 5, 6, 6), (1, 1, 3), {}, 1, "merge"),
        ((1, 4, 5, 6, 6), (1, 3, 3), {}, 0, "batch"),
        ((1, 4, 5, 6, 6), (3, 1, 3), {"strides": [1, 2, 1]}, 1, "batch"),
        ((1, 4, 5, 6, 6), (1, 3, 3), {"pads": [1, 0, 0, 0, 0, 0]}, 0, "batch"),
    ],
)
def test_the_way_an_axis_goes(x, kernel, attrs, axis, how):
    """The cheapest first."""
    found = removal(volume(x, (2, 4, *kernel), **attrs))
    assert found is not None
    assert (found.axis, found.how) == (axis, how)


@pytest.mark.parametrize(
    ("x", "kernel", "attrs"),
    [
        ((1, 4, 5, 6, 6), (3, 3, 3), {}),
        ((1, 4, 5, 6, 6), (1, 3, 3), {"op": "ConvTranspose", "pads": [1, 0, 0, 0, 0, 0]}),
        ((1, 4, "D", 6, 6), (1, 3, 3), {}),
        ((1, 4, 5, 6, 6), (1, 3, 3), {"auto_pad": "SAME_UPPER"}),
        ((1, 4, 4, 6, 6), (1, 3, 3), {"op": "ConvTranspose", "strides": [2, 1, 1]}),
    ],
)
def test_what_keeps_every_axis(x, kernel, attrs):
    """One sentence for each."""
    win = volume(x, (4, 4, *kernel), **attrs)
    assert removal(win) is None
    assert len(obstacles(win)) == 3
    assert obstacles(win)[0].startswith(f"axis 2 (kernel {kernel[0]}, stride {win.strides[0]}")


def test_an_axis_that_can_go_is_no_obstacle():
    """An axis that can be removed has no obstacles."""
    assert obstacles(volume((1, 4, 1, 6, 6), (2, 4, 1, 3, 3))) == []


@given(st.data())
def test_the_pairs_are_the_whole_sum(data):
    """The one cell of the output is the sum over (cell, tap), for both operators."""
    op = data.draw(st.sampled_from(["Conv", "ConvTranspose"]))
    kernel, dilation = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 3))
    stride, extent = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 6))
    reach = (kernel - 1) * dilation + 1
    full = extent if op == "Conv" else stride * (extent - 1) + reach
    begin = data.draw(st.integers(0, 6 if op == "Conv" else full - 1))
    end = reach - extent - begin if op == "Conv" else full - 1 - begin
    if end < 0:
        return
    win = Window(
        op=op, kernel=(kernel,), strides=(stride,), dilations=(dilation,), pads=((begin, end),),
        auto_pad="NOTSET", group=1, weight=None, input=(1, 1, extent), output=None,
        output_padding=(0,), output_shape=None,
    )  # fmt: skip
    assert win.output_extent(0) == 1
    found = removal(win)
    assert found is not None
    rng = np.random.default_rng(0)
    x, w = rng.integers(1, 9, extent), rng.integers(1, 9, kernel)
    pairs = zip(found.cells, found.taps, strict=True)
    assert sum(x[cell] * w[tap] for cell, tap in pairs if tap is not None) == _cell(win, x, w)


def _cell(win: Window, x: np.ndarray, w: np.ndarray) -> int:
    """The first cell of the output, as ONNX describes the operator."""
    assert win.kernel is not None
    (begin, end), stride, dilation = win.pads[0], win.strides[0], win.dilations[0]
    if win.op == "Conv":
        padded = np.pad(x, (begin, end))
        return sum(padded[tap * dilation] * w[tap] for tap in range(win.kernel[0]))
    taps = range(win.kernel[0])
    spread = [(i * stride + tap * dilation, x[i] * w[tap]) for i in range(len(x)) for tap in taps]
    return sum(value for position, value in spread if position == begin)
