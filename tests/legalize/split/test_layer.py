"""Tests of layers: whether the host hands over their source."""

from __future__ import annotations

import pytest

from npuconv.legalize.split.layer import layer_of
from support.asserts import read
from support.builders import Net
from support.target_files import chip

CONV = (4, 4, 3, 3)


def net(*ops: str) -> Net:
    """Operators of one input, then a convolution."""
    one = Net(x=(1, 4, 16, 16))
    for op in ops:
        one = one.conv(one.last, CONV) if op == "Conv" else one.op(op)
    return one.conv(one.last, CONV)


@pytest.mark.parametrize(
    ("one", "is_from_host"),
    [
        (net(), True),
        (net("Sigmoid"), True),  # on the device it would save no crossing
        (net("Conv"), False),
        (net("Conv", "Sigmoid"), False),
        (net("Conv", "Relu"), False),  # fused, or replaced by saturation
        (net("Conv", "Sin"), True),  # not listed
        (net("Conv", "Sin", "Sigmoid"), True),
        (net("Conv", "Sin", "Conv"), False),
    ],
)
def test_source(one: Net, is_from_host: bool) -> None:
    """A source is of the host unless a convolution feeds it through operators of the device."""
    conv = read(one.model()).nodes("Conv")[-1]
    layer = layer_of(conv, chip(also={"operators": {"Conv": {}, "Sigmoid": {}}}))
    assert not isinstance(layer, str)
    assert layer.from_host == is_from_host
