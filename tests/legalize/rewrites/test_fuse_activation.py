"""Tests of fuse-activation."""

from __future__ import annotations

import math

import pytest

from npuconv.config import Options
from npuconv.target import Target
from support.asserts import Passes, read, refusals, run_pass
from support.builders import Net
from support.target_files import chip

NAME = "fuse-activation"
X = (1, 4, 6, 5)


def hard_swish(*, divide=True, opset=21):
    """Spell it as exporters do, or with a factor instead of the quotient."""
    net = Net(opset=opset, x=X)
    net.op("Add", "x", net.constant(3.0), to="moved")
    net.op("Clip", "moved", net.constant(0.0), net.constant(6.0), to="cut")
    if divide:
        return net.op("Mul", "x", "cut", to="p").op("Div", "p", net.constant(6.0))
    return net.op("Mul", "cut", net.constant(1 / 6), to="p").op("Mul", "p", "x")


def gelu(*, by="Erf", opset=21):
    """Spell it as PyTorch exports both of its forms."""
    net = Net(opset=opset, x=X)
    if by == "Erf":
        net.op("Div", "x", net.constant(math.sqrt(2)), to="d").op("Erf", "d", to="e")
    else:
        net.op("Pow", "x", net.constant(3.0), to="c")
        net.op("Mul", "c", net.constant(0.044715), to="m").op("Add", "x", "m", to="s")
        net.op("Mul", "s", net.constant(math.sqrt(2 / math.pi)), to="d").op("Tanh", "d", to="e")
    net.op("Add", "e", net.constant(1.0), to="one").op("Mul", "x", "one", to="p")
    return net.op("Mul", "p", net.constant(0.5))


def gelu_of_products(*, by="Erf"):
    """Half of x first, products for the quotient and the cube: other exporters of PyTorch."""
    net = Net(opset=20, x=X)
    net.op("Mul", "x", net.constant(0.5), to="h")
    if by == "Erf":
        net.op("Mul", "x", net.constant(math.sqrt(0.5)), to="d").op("Erf", "d", to="e")
    else:
        net.op("Mul", "x", "x", to="s").op("Mul", "s", "x", to="c")
        net.op("Mul", "c", net.constant(0.044715), to="m").op("Add", "x", "m", to="a")
        net.op("Mul", "a", net.constant(math.sqrt(2 / math.pi)), to="d").op("Tanh", "d", to="e")
    return net.op("Add", "e", net.constant(1.0), to="one").op("Mul", "h", "one")


def product_of_gate(opset=14):
    """HardSwish of PyTorch before opset 14, raised since."""
    net = Net(opset=opset, x=X).op("HardSigmoid", "x", alpha=1 / 6, beta=0.5, to="g")
    return net.op("Mul", "x", "g")


def keras(op="HardSwish"):
    """Activations of Keras by tf2onnx: Relu6 as Relu and Min, a slope of 0.2."""
    net = Net(opset=17, x=X)
    if op == "HardSigmoid":
        net.op("Mul", "x", net.constant(0.2), to="m").op("Add", "m", net.constant(0.5), to="a")
        return net.op("Clip", "a", net.constant(0.0), net.constant(1.0))
    net.op("Add", "x", net.constant(3.0), to="a").op("Relu", "a", to="r")
    net.op("Min", "r", net.constant(6.0), to="six").op("Mul", "six", net.constant(1 / 6), to="g")
    return net.op("Mul", "x", "g")


def hard_sigmoid(slope=6.0):
    net = Net(opset=21, x=X)
    net.op("Add", "x", net.constant(3.0), to="moved")
    net.op("Clip", "moved", net.constant(0.0), net.constant(6.0), to="cut")
    return net.op("Div", "cut", net.constant(slope))


def silu(opset=21):
    return Net(opset=opset, x=X).op("Sigmoid", "x", to="s").op("Mul", "x", "s")


def mish():
    net = Net(opset=21, x=X).op("Softplus", "x", to="p").op("Tanh", "p", to="t")
    return net.op("Mul", "t", "x")


def listing(*ops: str, **limits: object) -> Target:
    """A target that lists these operators, with limits on the first."""
    listed: dict[str, object] = {op: {} for op in ("Conv", *ops)}
    if limits:
        listed[ops[0]] = {"limits": limits}
    return chip(also={"operators": listed})


def on(*ops: str, **limits: object) -> Passes:
    return Passes(listing(*ops, **limits), Options())


def behind(op: str) -> Net:
    """Mish of what is a function of one value itself, and is read elsewhere."""
    net = Net(opset=21, x=X).op(op, "x", to="r").op("Add", "r", "r", to="a")
    net.op("Sigmoid", "a", to="s").op("Softplus", "a", to="p").op("Tanh", "p", to="t")
    return net.op("Mul", "t", "a", to="m").op("Add", "m", "s")


def scaled() -> Net:
    """SiLU with a factor for each channel."""
    net = Net(opset=21, x=X).op("Sigmoid", "x", to="s")
    return net.op("Mul", "s", net.random(4, 1, 1), to="m").op("Mul", "m", "x")


EVERY = ("HardSwish", "HardSigmoid", "Gelu", "Mish", "Swish")
PARTS = listing("Add", "Mul", "Clip", "Erf", "Sigmoid")
CASES = [
    (hard_swish(), "HardSwish"),
    (hard_swish(divide=False), "HardSwish"),
    (hard_sigmoid(), "HardSigmoid"),
    (gelu(), "Gelu"),
    (gelu(by="Tanh"), "Gelu"),
    (gelu_of_products(), "Gelu"),
    (gelu_of_products(by="Tanh"), "Gelu"),
    (product_of_gate(), "HardSwish"),
    (keras(), "HardSwish"),
    (keras("HardSigmoid"), "HardSigmoid"),
    (silu(opset=24), "Swish"),
    (mish(), "Mish"),
]
FIRES = [(net.model, listing(*EVERY)) for net, _ in CASES]
FIRES += [(behind(op).model, listing("Mish")) for op in ("Relu", "Sigmoid")]
SILENT = [
    (hard_swish().model, PARTS),  # only what the target lists is written
    (gelu().model, PARTS),
    (silu().model, PARTS),
    (hard_sigmoid(6.5).model, listing(*EVERY)),  # the slope of no activation
    (scaled().model, listing(*EVERY)),
]


@pytest.mark.parametrize(("net", "op"), CASES)
def test_spelled_out_activations_are_recognized(net, op):
    """One operator is left."""
    model = read(net.model())
    assert run_pass(NAME, model, on(*EVERY)) == 1
    assert [node.op for node in model.nodes()] == [op]


def test_the_two_forms_of_gelu_are_told_apart():
    """Forms that differ by 5e-4 at most."""
    model = read(gelu(by="Tanh").model())
    run_pass(NAME, model, on("Gelu"))
    assert model.nodes()[0].attrs == {"approximate": "tanh"}


def test_near_misses_say_why():
    """A value that others read, an opset that is too old, and a limit of the target."""
    shared = hard_swish()
    last = shared.last
    shared.op("Relu", "cut", to="other").output(last, "other")
    texts = [reason for _, reason in refusals(NAME, shared.model(), on(*EVERY))]
    assert "it is HardSwish spelled out, but a value in between is read elsewhere, too" in texts
    ((_, text),) = refusals(NAME, silu().model(), on("Swish"))
    assert text == "it is Swish spelled out, which opset 21 does not have"
    limited = on("HardSigmoid", alpha={"equals": "0.2"})
    ((_, text),) = refusals(NAME, hard_sigmoid().model(), limited)
    assert text == "it is HardSigmoid spelled out: alpha is 0.1667, the device takes 0.2"


@pytest.mark.parametrize("spell", [gelu, gelu_of_products])
def test_tflite_has_gelu_and_no_erf(spell):
    """A target need not list it: the file would hold no Erf. One by a Tanh stays in parts."""
    ctx = Passes(Target.load("npu-int8"), Options(format="tflite"))
    model = read(spell().model())
    assert run_pass(NAME, model, ctx) == 1
    assert [node.op for node in model.nodes()] == ["Gelu"]
    assert run_pass(NAME, read(spell(by="Tanh").model()), ctx) == 0
    onnx_ctx = Passes(Target.load("npu-int8"), Options())
    assert run_pass(NAME, read(spell().model()), onnx_ctx) == 0
