"""Tests of rewrite-hard-sigmoid-as-clip."""

from __future__ import annotations

import numpy as np

import npuconv
from npuconv.config import Options
from support.asserts import Passes, builtin, read, run_pass, same_numbers
from support.builders import Net
from support.target_files import chip

NAME = "rewrite-hard-sigmoid-as-clip"
X = (1, 4, 6, 6)
CHIP = builtin("ethos-u55")  # lists Mul, and no HardSigmoid


def gate(opset: int = 17, x: tuple[int, ...] = X, **attrs: float) -> Net:
    """A convolution, a HardSigmoid, and what it scales."""
    net = Net(x=x, opset=opset).conv("x", (4, 4, 1, 1)).op("HardSigmoid", **attrs)
    return net.op("Mul", "x", net.last)


def also_read() -> Net:
    net = Net(x=X).conv("x", (4, 4, 1, 1)).output()
    net.op("HardSigmoid")
    return net.op("Mul", "x", net.last).output()


FIRES = [
    (lambda: gate().model(), CHIP),
    (lambda: gate(alpha=1 / 6).model(), CHIP),
    (lambda: gate(opset=9, alpha=0.5, beta=0.1).model(), CHIP),
]
SILENT = [
    lambda: gate().model(),  # the host multiplies
    (lambda: Net(x=X).op("HardSigmoid").op("Mul", "x", "t0").model(), CHIP),
    (lambda: also_read().model(), CHIP),
    (lambda: gate().model(), chip("Mul", also={"fused_activations": {"one_of": ["Relu"]}})),
]


def test_slope_and_offset_go_into_the_convolution():
    """A Clip from 0 to 1 is left."""
    proto = gate(alpha=1 / 6).model()
    model = read(proto)
    assert run_pass(NAME, model, Passes(CHIP, Options())) == 1
    assert [node.op for node in model.nodes()] == ["Conv", "Clip", "Mul"]
    same_numbers(proto, model)


def test_shapes_that_contradict_each_other():
    """The attributes have their defaults all the same; the model is refused when it is loaded."""
    model = read(gate(x=()).model())
    assert run_pass(NAME, model, Passes(CHIP, Options(), measures=False)) == 1


def test_the_device_makes_the_gate():
    """The host is left with nothing, and the steps are not coarser than from 0 to 1."""
    net = Net(x=X).conv("x", (4, 4, 1, 1), to="a").conv("a", (4, 4, 1, 1))
    net.op("HardSigmoid", alpha=1 / 6, to="g").op("Mul", "a", "g", to="b")
    net.conv("b", (4, 4, 1, 1))
    data = {"x": np.random.default_rng(0).normal(size=(16, *X[1:])).astype(np.float32)}
    report = npuconv.convert(net.model(), "ethos-u55", calibration=data).report
    assert {node.op for node in report.nodes} == {"Conv", "Clip", "Mul"}
    assert {node.placement for node in report.nodes} == {"device"}
    (row,) = [one for one in report.quantization.tensors if one.name == "g"]
    assert row.scale <= 1 / 254
