"""Tests of windows in parts."""

from __future__ import annotations

import pytest

from npuconv.legalize.fitting.splits.kernel import split_kernel
from support.builders import Net
from support.fits import fit, layer, proposals


def net(x=(1, 4, 12, 12), weight=(4, 4, 5, 5), **attrs) -> Net:
    return Net(x=x).conv("x", weight, **attrs)


def test_two_halves():
    """The bias is that of one of them; a depthwise one has no phases."""
    found = fit(net(weight=(4, 1, 5, 3), group=4), kernel_h={"max": 3})
    assert found.ops == {"Slice": 2, "Conv": 2, "Add": 1}
    assert sorted(len(n.inputs) for n in found.model.nodes("Conv")) == [2, 3]


@pytest.mark.parametrize("strides", [[1, 1], [2, 2], [3, 1]])
@pytest.mark.parametrize("dilations", [[1, 1], [2, 1]])
def test_single_taps(strides, dilations):
    """A device that has only 1x1 convolutions of stride 1."""
    one = {f"{name}_{side}": {"max": 1} for name in ("kernel", "stride") for side in "hw"}
    found = fit(net(weight=(4, 4, 3, 3), strides=strides, dilations=dilations), **one)
    assert found.ops["Conv"] == 9
    assert found.ops["Sum"] == 1


def test_unknown_extents():
    """Slices count from the end."""
    found = fit(net(x=(1, 4, "H", "W"), dilations=[2, 1], pads=[4, 4, 4, 4]), kernel_h={"max": 3})
    assert found.ops["Conv"] == 2


def test_phases_of_the_stride_are_parts():
    """Fewer than there are taps."""
    limits = {"stride_h": {"max": 1}, "stride_w": {"max": 1}}
    forms = proposals(split_kernel, layer((4, 8, 3, 3), strides=(2, 2)), **limits)
    assert forms[0].text == "2x2 parts of the window"
    assert forms[0].summed > 0


def test_a_kernel_taller_than_the_image_that_is_taken():
    """Tiles alone would not do: the kernel reaches beyond them."""
    assert fit(net(weight=(4, 4, 9, 3)), in_h={"max": 6}).fired == 1
