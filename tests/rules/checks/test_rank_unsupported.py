"""Tests of rank-unsupported."""

from __future__ import annotations

import pytest

from support.asserts import finding
from support.builders import Net
from support.target_files import chip

CODE = "SHP001"


def conv(axes: int):
    extents = (8,) * axes
    return Net(x=(1, 3, *extents)).conv("x", (4, 3, *(3,) * axes), name="conv").model()


def pool(axes: int):
    return Net(x=(1, 3, *(8,) * axes)).op("MaxPool", kernel_shape=[2] * axes).model()


FIRES = [
    lambda: conv(1),
    lambda: conv(3),
]
SILENT = [
    lambda: conv(2),
    lambda: pool(1),
    (lambda: pool(1), chip("MaxPool", rank={"equals": 4})),
    (lambda: conv(1), chip(rank=[3, 4])),
    lambda: Net(x=(1, 3)).op("Mystery", domain="org.example").model(),
]


@pytest.mark.parametrize(("axes", "rank"), [(1, 3), (3, 5)])
def test_it_names_the_rank(axes, rank):
    """Dimensions are counted as ONNX does, with batch and channels."""
    found = finding(conv(axes), CODE)
    assert found.message.startswith(f"Conv of rank {rank}; the device takes rank 4")
    assert (found.node, found.value, found.limit) == ("conv", f"rank={rank}", "4")
    assert "(notes/X: only Conv2D)" in found.source


def test_it_says_what_keeps_each_axis():
    """The message has the obstacle of each of three axes, in numbers; none for one."""
    found = finding(conv(3), CODE)
    assert found.message.endswith(
        "and no axis can be removed: axis 2 (kernel 3, stride 1, extent 8); "
        "axis 3 (kernel 3, stride 1, extent 8); axis 4 (kernel 3, stride 1, extent 8); "
        "--prefer slices would make the 3 taps of axis 2 channels and copy 3,456 values"
    )
    assert found.fix.startswith("Add `--prefer slices`")
    assert "slices" not in finding(conv(1), CODE).fix
    assert "axis" not in finding(conv(1), CODE).message
