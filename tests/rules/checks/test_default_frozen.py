"""Tests of default-frozen."""

from __future__ import annotations

import onnx

import npuconv
from support.asserts import finding
from support.builders import Net, images

CODE = "MDL007"
_SHAPES = {"w": (4, 3, 3, 3), "k": (1,)}


def factor(*, ir_version: int = 8, listed: tuple[str, ...] = ("k",)) -> onnx.ModelProto:
    """A convolution times a factor, with these initializers among the inputs."""
    net = Net(x=(1, 3, 8, 8), ir_version=ir_version, **{name: _SHAPES[name] for name in listed})
    weight = net.random(4, 3, 3, 3, name="w")
    net.op("Conv", "x", weight).op("Mul", net.last, net.constant([2.0], "k"))
    return net.model()


FIRES = [factor]
SILENT = [
    lambda: factor(ir_version=3, listed=("w", "k")),
    lambda: factor(listed=("w", "k")),
    lambda: factor(listed=("w",)),
    lambda: factor(listed=()),
]


def test_the_input_is_named():
    """A program that feeds the input needs the warning."""
    found = finding(factor(), CODE)
    assert found.message == "the input 'k' has a default, and becomes a constant of that value"
    assert found.severity == "warning"


def test_check_and_convert_say_so():
    """The written model has no such input."""
    made = npuconv.convert(factor(), calibration={"x": images(4, 3, 8, 8)})
    assert [i.name for i in made.model.graph.input] == ["x"]
    codes = [[f.code for f in r.findings] for r in (npuconv.check(factor()), made.report)]
    assert all(found.count(CODE) == 1 for found in codes)
