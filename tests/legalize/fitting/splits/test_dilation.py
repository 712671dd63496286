"""Tests of the rewrite of dilations."""

from __future__ import annotations

import pytest

from npuconv.legalize.fitting.splits.dilation import undo_dilation
from support.builders import Net
from support.fits import fit, layer, proposals

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
    found = fit(net, kernel_h={"max": 3}, kernel_w={"max": 3}, **ONE)
    assert found.ops["Conv"] == dilations[0] * dilations[1]
    assert len(found.weights) == 1


def test_a_single_tap_has_no_dilation():
    """Only the attribute changes."""
    forms = proposals(undo_dilation, layer((4, 8, 1, 1), dilations=(2, 2)), **ONE)
    assert [f.parts[0].layer.kernel for f in forms] == [(1, 1)]
