"""Tests of rewrite-fused-conv."""

from __future__ import annotations

import pytest

import npuconv
from support.asserts import context, read, run_pass, same_numbers
from support.builders import Net

NAME = "rewrite-fused-conv"
X = (1, 3, 9, 8)


def fused(activation: str = "", *params: float, sums: bool = False, bias: bool = True, **attrs):
    """A model of one FusedConv behind a Conv."""
    net = Net(x=X).conv("x", (3, 3, 1, 1), name="first")
    names = [net.last, net.random(3, 3, 3, 3), net.random(3) if bias else ""]
    if activation:
        attrs |= {"activation": activation}
    if params:
        attrs |= {"activation_params": list(params)}
    attrs = {"kernel_shape": [3, 3], **({} if "auto_pad" in attrs else {"pads": [1] * 4}), **attrs}
    inputs = [*names, net.last] if sums else names
    return net.op("FusedConv", *inputs, domain="com.microsoft", name="fused", **attrs).model()


FIRES = [
    lambda: fused("Relu"),
    lambda: fused(),
    lambda: fused("Relu", sums=True),
    lambda: fused("Relu", sums=True, bias=False),
    lambda: fused("Clip", -0.1, 0.3, auto_pad="SAME_LOWER"),
    lambda: fused("LeakyRelu", 0.2, strides=[2, 1]),
    lambda: fused("HardSigmoid", 0.3, 0.6, dilations=[1, 2]),
    lambda: fused("Sigmoid"),
    lambda: fused("Tanh"),
]
SILENT = [
    lambda: Net(x=X).conv("x").op("Relu").model(),
    lambda: Net(x=X).op("FusedConv", domain="org.example").model(),
    lambda: fused("Gelu"),
    lambda: fused("Clip", 0.1),
]
NOT_RUNNABLE = [SILENT[1], SILENT[2], SILENT[3]]


@pytest.mark.parametrize("build", FIRES)
def test_it_becomes_standard_operators(build):
    """The numbers are onnxruntime's; the convolution keeps its name."""
    proto = build()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    assert all((node.domain or "") == "" for node in model.nodes())
    assert [node.name for node in model.nodes("Conv")] == ["first", "fused"]
    same_numbers(proto, model)


def test_check_and_convert_take_it():
    """The convolution runs on the device, its activation fused."""
    proto = fused("Relu")
    report = npuconv.check(proto)
    assert report.summary.verdict == "convertible"
    assert report.device.macs_after.device == report.device.macs_after.total
    found = npuconv.convert(proto, format="float").model
    assert [node.op_type for node in found.graph.node] == ["Conv", "Conv", "Relu"]
    assert {opset.domain for opset in found.opset_import} == {""}


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (SILENT[2], "its activation is 'Gelu', none of Relu, Sigmoid"),
        (SILENT[3], "activation Clip takes 2 activation_params, not 1"),
    ],
)
def test_what_cannot_be_read_is_named(build, reason):
    """An activation of another name, or without its numbers."""
    ctx = context()
    assert not run_pass(NAME, read(build()), ctx)
    assert next(iter(ctx.refusals)).reason.startswith(reason)
    (found,) = (f for f in npuconv.check(build()).findings if f.code == "OPS004")
    assert f"not rewritten: {reason}" in found.message
