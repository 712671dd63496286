"""Tests of padding-out-of-range."""

from __future__ import annotations

import pytest

from support.asserts import finding, findings
from support.builders import Net
from support.target_files import chip

CODE = "SHP009"
X = (1, 3, 12, 12)
MEASURED = {"pad_top": 1, "pad_left": 2, "pad_bottom": 3, "pad_right": 4, "pad_max": 4}
ADDED = {"output_padding_h": 1, "output_padding_w": 2}


def conv():
    return Net(x=X).conv("x", (4, 3, 5, 5), pads=[1, 2, 3, 4], name="conv").model()


def up():
    net = Net(x=X).conv("x", (3, 4, 5, 5), op="ConvTranspose", name="conv")
    net.nodes[-1].attribute.extend(
        Net().op("X", output_padding=[1, 2], strides=[2, 3]).nodes[0].attribute
    )
    return net.model()


def limit(fact: str, most: int):
    return chip("ConvTranspose" if fact in ADDED else "Conv", **{fact: {"max": most}})


FIRES = [(conv, limit(fact, value - 1)) for fact, value in MEASURED.items()]
FIRES += [(up, limit(fact, value - 1)) for fact, value in ADDED.items()]
SILENT = [(conv, limit(fact, value)) for fact, value in MEASURED.items()]
SILENT += [(up, limit(fact, value)) for fact, value in ADDED.items()]
SILENT += [conv, (lambda: Net(x=X).conv("x").model(), chip(pad_max={"max": 0}))]


@pytest.mark.parametrize("fact", [*MEASURED, *ADDED])
def test_every_side_has_its_limit(fact):
    """ONNX lists begins before ends: top, left, bottom, right."""
    value = (MEASURED | ADDED)[fact]
    found = finding(up() if fact in ADDED else conv(), CODE, limit(fact, value - 1))
    assert found.message == f"{fact} is {value}; the device takes at most {value - 1}"
    assert (found.node, found.value) == ("conv", f"{fact}={value}")


def test_a_pad_may_depend_on_the_kernel():
    """The limit shows the number it stands for."""
    target = chip(pad_left={"range": [0, "stride_w"]})
    assert finding(conv(), CODE, target).limit == "0..stride_w (=1)"


def test_pads_of_the_device_that_nobody_wrote_down():
    """The built-in target marks them unknown, which is another rule's business."""
    assert not findings(conv(), CODE)
