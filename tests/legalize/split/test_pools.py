"""Tests of pools in turn, with some channels at a time, and in tiles."""

from __future__ import annotations

from typing import Any

import pytest

from npuconv.legalize.split.layer import Layer
from npuconv.legalize.split.pools import (
    pools_in_turn,
    split_pool_channels,
    split_pool_image,
)
from support.fits import layer, proposals


def pool(kernel: int = 3, cells: int = 16, channels: int = 6, **attrs: Any) -> Layer:
    """A max pool of a square."""
    attrs = {"op": "MaxPool", **attrs}
    return layer((channels, 1, kernel, kernel), cells, group=channels, **attrs)


def test_as_few_in_turn_as_can_be():
    """Kernels of 7 and 7 reach 13 cells."""
    (form,) = proposals(pools_in_turn, pool(13), kernel_h={"max": 7}, kernel_w={"max": 7})
    assert form.text == "in turn 7x7, 7x7"
    assert [part.layer.extents for part in form.parts] == [(16, 16), (10, 10)]


@pytest.mark.parametrize("cells", [31, 100, 508])
def test_blocks_of_an_image(cells: int) -> None:
    """A pool of all cells: every cell is in a block, and no stride is beyond its limit."""
    limits = {"kernel_h": {"max": 16}, "stride_h": {"max": 16}}
    (form,) = proposals(pools_in_turn, pool(cells, cells), **limits)
    layers = [part.layer for part in form.parts for _ in range(part.count)]
    assert len(layers) == (2 if cells < 256 else 3)
    extents: tuple[int | None, ...] = (cells, cells)
    for block in layers:
        assert block.extents == extents
        assert (cells - block.kernel[0]) % block.strides[0] == 0
        assert block.strides <= block.kernel
        cells, extents = block.cells(0) or 0, block.output[2:]
    assert extents == (1, 1)


def test_averages_do_not_follow_each_other():
    """No proposal for averages, or for pads around a dilated kernel."""
    limits = {"kernel_h": {"max": 3}}
    assert proposals(pools_in_turn, pool(9, op="AveragePool"), **limits) == []
    dilated = pool(5, dilations=(2, 2), pads=((1, 1), (1, 1)))
    assert proposals(pools_in_turn, dilated, **limits) == []


def test_some_channels_at_a_time():
    """The last may be fewer."""
    (form,) = proposals(split_pool_channels, pool(channels=7), in_c={"max": 3})
    assert [(p.layer.in_channels, p.count) for p in form.parts] == [(3, 2), (1, 1)]


@pytest.mark.parametrize("stride", [1, 2])
def test_tiles_pad_what_they_have_of_the_border(stride):
    """The first tile has the begin pads, the last tile the end pads."""
    one = pool(pads=((1, 1), (0, 1)), strides=(stride, stride))
    (form,) = proposals(split_pool_image, one, in_h={"max": 8})
    rows = [(part.layer.pads[0], part.layer.extents[0]) for part in form.parts]
    assert rows[0][0] == (1, 0)
    assert rows[-1][0][0] == 0
    assert max(extent for _, extent in rows) <= 8


def test_unknown_extents_are_left_alone():
    """No limit is broken by what is not known."""
    assert proposals(split_pool_image, pool(source=(1, 6, None, None)), in_h={"max": 4}) == []
