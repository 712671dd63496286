"""Tests of eliminate-ceil-mode."""

from __future__ import annotations

import pytest

from support.asserts import read, run_pass
from support.builders import Net

NAME = "eliminate-ceil-mode"


def pool(op: str = "MaxPool", extents: tuple = (8, 8), opset: int = 17, **attrs: object):
    """A pool that rounds up, and a Conv behind it."""
    net = Net(x=(1, 3, *extents), opset=opset)
    attrs = {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1} | attrs
    return net.op(op, **attrs).conv("", (4, 3, 1, 1)).model()


FIRES = [
    lambda: pool(),
    lambda: pool("AveragePool", (9, 9), strides=[1, 1]),
    lambda: pool(extents=(6, 6), kernel_shape=[1, 1]),  # the fourth would start behind the input
    lambda: pool("AveragePool", (6, 6), kernel_shape=[1, 1], opset=21),
]
SILENT = [
    lambda: pool(extents=(9, 9)),
    lambda: pool(extents=(8, "w")),
    lambda: pool(extents=(9, 9), auto_pad="SAME_UPPER"),
    lambda: pool(ceil_mode=0),
]


@pytest.mark.parametrize("build", FIRES)
def test_the_attribute_is_gone(build):
    """A reader without support of ceil_mode gets the same extents."""
    model = read(build())
    assert run_pass(NAME, model) == 1
    assert model.nodes()[0].attrs["ceil_mode"] == 0
