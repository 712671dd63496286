"""Tests of the rewrite of pads."""

from __future__ import annotations

from npuconv.legalize.split.pads import even_pads, move_pads
from support.builders import Net
from support.fits import fit, layer, proposals

WAYS = (move_pads, even_pads)
EVEN = [{"then": "pad_top == pad_bottom && pad_left == pad_right"}]


def net(x=(1, 3, 8, 8), **attrs) -> Net:
    return Net(x=x).conv("x", (2, 3, 3, 3), **attrs)


def test_a_pad_in_front():
    """The convolution pads nothing then."""
    found = fit(net(pads=[2, 1, 2, 1]), pad_max={"max": 1})
    assert found.ops == {"Pad": 1, "Conv": 1}


def test_equal_pads_and_a_slice():
    """Equal pads and a Slice are cheaper than a Pad if only the difference is forbidden."""
    found = fit(net(pads=[1, 1, 0, 1]), costs={"moved_byte": 0}, require=EVEN)
    one = layer(pads=((1, 0), (1, 1)))
    forms = [form for way in WAYS for form in proposals(way, one, require=EVEN)]
    assert [f.text for f in forms] == ["Pad in front", "pads 1x1, then a Slice"]
    assert found.fired == 1


def test_unknown_extents():
    """A Pad needs none."""
    assert fit(net(x=(1, 3, "H", "W"), pads=[2, 2, 2, 2]), pad_max={"max": 0}).ops["Pad"] == 1


def test_a_stride_that_the_growth_does_not_divide():
    """No Slice gives the cells back if the stride does not divide the growth."""
    one = layer(pads=((0, 1), (1, 1)), strides=(2, 2))
    forms = [form for way in WAYS for form in proposals(way, one, require=EVEN)]
    assert [f.text for f in forms] == ["Pad in front"]
