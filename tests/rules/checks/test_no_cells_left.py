"""Tests of no-cells-left."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import npuconv
from support.asserts import finding
from support.builders import Net

CODE = "SHP020"
X = (1, 3, 4, 5)


def conv(x: tuple[int | str, ...] = X, **attrs: object) -> onnx.ModelProto:
    return Net(x=x).conv("x", (4, 3, 5, 5), name="conv", **attrs).model()


def pool(**attrs: object) -> onnx.ModelProto:
    """A pool that is larger than what it reads by one cell."""
    net = Net(x=X).op("AveragePool", name="pool", kernel_shape=[5, 5], **attrs)
    return net.conv("", (4, 3, 1, 1)).model()


def resize(*scales: float, sizes: tuple[int, ...] = ()) -> onnx.ModelProto:
    net = Net(x=X).conv("x", (3, 3, 1, 1))
    names = [net.last, "", net.constant(np.asarray(scales, np.float32))]
    if sizes:
        names = [net.last, "", "", net.constant(np.asarray(sizes, np.int64))]
    return net.op("Resize", *names, name="resize").model()


FIRES = [
    conv,
    pool,
    lambda: conv((1, 3, "H", 4)),
    lambda: conv((1, 3, 6, 6), dilations=[1, 2]),
    lambda: resize(1, 1, 0.2, 1),
]
SILENT = [
    lambda: conv(pads=[0, 0, 1, 0]),
    lambda: conv(auto_pad="SAME_UPPER"),
    lambda: conv((1, 3, "H", "W")),
    lambda: conv((1, 3, 5, 5)),
    lambda: pool(ceil_mode=1, strides=[2, 2]),
    lambda: resize(1, 1, 0.25, 0.5),
    lambda: resize(sizes=(1, 3, 1, 9)),
]


def test_the_message_has_both_numbers():
    """Cells and reach; pads where there are some."""
    wanted = "axis 2 of its input has 4 cells, and the kernel reaches over 5: nothing is left"
    assert finding(conv(), CODE).message == wanted
    padded = finding(conv(dilations=[2, 1], pads=[1, 0, 2, 0]), CODE)
    assert "the kernel reaches over 9, with pads of 3: nothing" in padded.message
    assert (
        "axis 2 of its input has 4 cells, and the scale is 0.2"
        in finding(resize(1, 1, 0.2, 1), CODE).message
    )


def shrunk(net: Net) -> Net:
    """Resize to a tenth, which is nothing, and then to twice that."""
    for scale in (0.1, 2):
        factors = net.constant(np.asarray([1, 1, scale, scale], np.float32))
        net.op("Resize", net.last, "", factors)
    return net


@pytest.mark.parametrize("behind", [lambda net: net.op("AveragePool", kernel_shape=[5, 5]), shrunk])
@pytest.mark.parametrize("form", ["qoperator", "qdq"])
def test_extents_that_only_the_samples_have(behind, form):
    """A conversion ends without a bug report where check cannot know them."""
    data = {"x": np.zeros((2, 3, 4, 5), np.float32)}
    proto = behind(Net(x=("N", 3, "H", "W")).conv("x", (4, 3, 1, 1))).model()
    made = npuconv.convert(proto, "ethos-u55", calibration=data, format=form, fail_on="never")
    assert not [found for found in made.report.findings if found.code == CODE]
