"""Tests of windows in parts, larger, and without dilation."""

from __future__ import annotations

import pytest

from npuconv.legalize.split.kernel import enlarge_kernel, split_kernel, undo_dilation
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
    one = layer((4, 8, 3, 3), strides=(2, 2))
    forms = proposals(split_kernel, one, **limits)
    assert forms[0].text == "2x2 parts of the window"
    assert split_kernel.sums(one, forms[0]) > 0


def test_a_kernel_taller_than_the_image_that_is_taken():
    """Tiles alone would not do: the kernel reaches beyond them."""
    assert fit(net(weight=(4, 4, 9, 3)), in_h={"max": 6}).fired == 1


def test_a_square_kernel():
    """Zeros where there are no taps."""
    net = Net(x=(1, 3, 9, 9)).conv("x", (2, 3, 1, 3), pads=[0, 1, 0, 1])
    found = fit(net, require=[{"then": "kernel_h == kernel_w"}])
    assert found.model.nodes("Conv")[0].attrs["kernel_shape"] == [3, 3]
    assert found.model.nodes("Conv")[0].attrs["pads"] == [0, 1, 2, 1]


def test_a_pad_in_front_where_pads_are_limited():
    """The cells that the zeros meet are there all the same."""
    net = Net(x=(1, 3, 9, 9)).conv("x", (2, 3, 2, 2))
    found = fit(net, kernel_h={"equals": 3}, kernel_w={"equals": 3}, pad_max={"max": 0})
    assert found.ops == {"Pad": 1, "Conv": 1}


def test_no_larger_kernel_is_legal():
    """No proposal is made if no larger kernel is legal."""
    assert proposals(enlarge_kernel, layer(), kernel_h={"max": 2}) == []


ONE = {"dilation_h": {"max": 1}, "dilation_w": {"max": 1}}


def test_zeros_between_the_taps():
    """One convolution; dearer by what it multiplies with zeros."""
    net = Net(x=(1, 4, "H", "W")).conv("x", (4, 4, 3, 3), dilations=[2, 2], pads=[2] * 4)
    found = fit(net, costs={"convolution": 1e9}, **ONE)
    assert found.ops == {"Conv": 1}
    assert found.model.nodes("Conv")[0].attrs["kernel_shape"] == [5, 5]


@pytest.mark.parametrize("dilations", [[2, 2], [3, 1], [2, 3]])
def test_phases_where_the_dense_kernel_does_not_fit(dilations):
    """Phases have equal shapes and the same weights."""
    net = Net(x=(1, 4, 13, 12)).conv("x", (4, 4, 3, 3), dilations=dilations, pads=[1, 2, 1, 2])
    costs = {"crossing": 0, "crossing_byte": 0}
    found = fit(net, costs, kernel_h={"max": 3}, kernel_w={"max": 3}, **ONE)
    assert found.ops["Conv"] == dilations[0] * dilations[1]
    assert len(found.weights) == 1


def test_a_single_tap_has_no_dilation():
    """Only the attribute changes."""
    forms = proposals(undo_dilation, layer((4, 8, 1, 1), dilations=(2, 2)), **ONE)
    assert [f.parts[0].layer.kernel for f in forms] == [(1, 1)]
