"""Tests of bias-unsupported."""

from __future__ import annotations

from support.asserts import finding
from support.builders import Net
from support.target_files import chip

CODE = "SHP014"
X = (1, 3, 8, 8)
WITHOUT, WITH = chip(bias={"equals": False}), chip(bias={"equals": True})
FIRES = [
    (lambda: Net(x=X).conv("x", name="conv").model(), WITHOUT),
    (lambda: Net(x=X).conv("x", bias=False).model(), WITH),
]
SILENT = [
    (lambda: Net(x=X).conv("x", bias=False).model(), WITHOUT),
    (lambda: Net(x=X).conv("x").model(), WITH),
    lambda: Net(x=X).conv("x").model(),
    (lambda: Net(x=X).conv("x").model(), chip(bias=[True, False])),
]


def test_a_bias_where_the_device_takes_none():
    """Truth values are written as in the target file."""
    found = finding(FIRES[0][0](), CODE, WITHOUT)
    assert found.message == "bias present is true; the device takes false"
    assert (found.node, found.value, found.limit) == ("conv", "bias=true", "false")


def test_no_bias_where_the_device_needs_one():
    """The other way round."""
    found = finding(FIRES[1][0](), CODE, WITH)
    assert found.message == "bias present is false; the device takes true"


def test_an_empty_name_is_no_bias():
    """ONNX leaves out an optional input that way."""
    net = Net(x=X)
    proto = net.op("Conv", "x", net.random(4, 3, 3, 3), "").model()
    assert finding(proto, CODE, WITH).value == "bias=false"


def test_the_advice_fits_what_the_device_wants():
    """Training without a bias is no advice if the device needs one."""
    unwanted, missing = (finding(build(), CODE, target).fix for build, target in FIRES)
    assert "train without bias" in unwanted
    assert "train without" not in missing
    assert "zeros change no result" in missing
