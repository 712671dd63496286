"""Tests of tiles and of batches."""

from __future__ import annotations

import pytest

from npuconv.legalize.split.tiles import split_batch, split_image
from support.builders import Net
from support.fits import fit, layer, proposals


@pytest.mark.parametrize("extent", [15, 16, 17, 23])
@pytest.mark.parametrize("stride", [1, 2])
def test_one_shape_and_one_initializer(extent, stride):
    """All tiles have one shape and share one initializer, for any extent and stride."""
    net = Net(x=(1, 3, extent, 16)).conv("x", (2, 3, 3, 3), strides=[stride] * 2, pads=[1] * 4)
    found = fit(net, in_h={"max": 9}, in_w={"max": 10})
    assert len(found.weights) == 1
    assert len({tuple(n.inputs[0].shape) for n in found.model.nodes("Conv")}) == 1


def test_an_image_that_is_too_small():
    """A small image is enlarged, and the surplus output is cut off."""
    net = Net(x=(1, 3, 5, 7)).conv("x", (2, 3, 3, 3))
    found = fit(net, in_h={"min": 8}, in_w={"multiple_of": 4})
    assert found.ops == {"Pad": 1, "Conv": 1, "Slice": 1}


def test_too_tall_and_too_narrow():
    """Each axis by itself."""
    net = Net(x=(1, 3, 20, 3)).conv("x", (2, 3, 3, 3))
    assert fit(net, in_h={"max": 8}, in_w={"min": 4}).fired == 1


def test_a_product_of_extents():
    """The longer axis is cut first."""
    (form,) = proposals(split_image, layer(cells=20), require=[{"then": "in_h * in_w <= 250"}])
    assert form.text == "2x1 tiles of 11x20"


def test_unknown_extents_are_left_alone():
    """No limit is broken by what is not known."""
    assert proposals(split_image, layer(source=(1, 8, None, None)), in_h={"max": 4}) == []


def test_one_image_at_a_time():
    """All read the same weights."""
    found = fit(Net(x=(3, 4, 6, 6)).conv("x", (2, 4, 3, 3)), in_n={"equals": 1})
    assert found.ops == {"Slice": 3, "Conv": 3, "Concat": 1}
    assert len(found.weights) == 1


def test_as_many_as_fit():
    """The last may be fewer."""
    found = fit(Net(x=(5, 4, 6, 6)).conv("x", (2, 4, 3, 3)), in_n={"max": 2})
    assert [n.inputs[0].shape[0] for n in found.model.nodes("Conv")] == [2, 2, 1]


def test_an_unknown_batch_is_left_alone():
    """An unknown batch breaks no limit."""
    assert proposals(split_batch, layer(source=(None, 8, 9, 9)), in_n={"max": 1}) == []
