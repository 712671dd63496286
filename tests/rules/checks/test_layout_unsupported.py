"""Tests of layout-unsupported."""

from __future__ import annotations

from support.asserts import finding, findings
from support.builders import Net
from support.target_files import chip

CODE = "SHP013"
NHWC = chip(layout={"equals": "nhwc"})


def conv():
    return Net(x=(1, 3, 8, 8)).conv("x", name="conv").model()


FIRES = [(conv, NHWC)]
SILENT = [
    conv,
    (conv, chip(layout=["nchw", "nhwc"])),
    (conv, chip(layout="?")),
    lambda: Net(x=(1, 3, 8, 8)).op("Relu").model(),
]


def test_a_device_of_the_other_layout():
    """The default writes NCHW."""
    found = finding(conv(), CODE, NHWC)
    assert found.message == "it would be written with layout nchw; the device takes nhwc"
    assert (found.node, found.value, found.limit) == ("conv", "nchw", "nhwc")
    assert found.fix.startswith("Give --layout nhwc and --format qoperator.")


def test_the_layout_is_the_one_that_will_be_written():
    """The advice helps, and a request for a wrong layout is reported."""
    assert not findings(conv(), CODE, NHWC, layout="nhwc")
    found = finding(conv(), CODE, layout="nhwc")
    assert found.value == "nhwc"
    assert found.fix.startswith("Give --layout nchw.")


def test_a_device_of_neither():
    """No option helps; the general advice stands."""
    neither = chip(layout={"one_of": ["nchw"], "why": "x"})
    assert "--layout" in finding(conv(), CODE, neither, layout="nhwc").fix
