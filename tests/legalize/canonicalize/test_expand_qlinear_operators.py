"""Tests of expand-qlinear-operators."""

from __future__ import annotations

import numpy as np
import pytest

from support.asserts import context, read, run_pass, same_numbers
from support.builders import Net
from support.quantized_nets import Quantized, operators

NAME = "expand-qlinear-operators"
RTOL = (
    0.05  # a step: the last integer may round the other way: operators of onnxruntime are float32
)
CONTRIB = "com.microsoft"


def contrib(op: str, *, pair: bool = False, dtype: type = np.int8, **attrs):
    """A model of one operator of onnxruntime between conversions."""
    net = Quantized(x=(1, 3, 8, 8))
    own, made = net.parameters(0.031, 5, dtype), net.parameters(0.027, 3, dtype)
    stored = net.op("QuantizeLinear", "x", *own).last
    inputs = [stored, *own, *([stored, *own] if pair else []), *made]
    net.op(op, *inputs, domain=CONTRIB, name="node", **attrs)
    return net.op("DequantizeLinear", net.last, *made).model()


def concat(count: int = 2):
    net = Quantized(x=(1, 3, 8, 8))
    own, made = net.parameters(0.031, 5), net.parameters(0.041, -4)
    stored = net.op("QuantizeLinear", "x", *own).last
    parts = [name for _ in range(count) for name in (stored, *own)]
    net.op("QLinearConcat", *made, *parts, domain=CONTRIB, axis=1)
    return net.op("DequantizeLinear", net.last, *made).model()


def gemm(*, alpha: float = 1.0, bias: bool = True, made: bool = True):
    net = Quantized(x=(2, 6))
    own, last = net.parameters(0.031, 5), net.parameters(0.02, -4)
    stored = net.op("QuantizeLinear", "x", *own).last
    weight = [net.integers(4, 6), *net.parameters([0.001, 0.002, 0.003, 0.004], 0)]
    values = net.constant(np.asarray([10, -20, 3000, 4], np.int32)) if bias else ""
    ends = last if made else []
    net.op("QGemm", stored, *own, *weight, values, *ends, domain=CONTRIB, transB=1, alpha=alpha)
    return (net.op("DequantizeLinear", net.last, *last) if made else net).model()


FIRES = [
    operators,
    lambda: operators(np.uint8, 125),
    lambda: contrib("QLinearAdd", pair=True),
    lambda: contrib("QLinearMul", pair=True, dtype=np.uint8),
    lambda: contrib("QLinearAveragePool", kernel_shape=[2, 2], strides=[2, 2]),
    lambda: contrib("QLinearGlobalAveragePool", channels_last=0),
    lambda: contrib("QLinearSigmoid"),
    lambda: contrib("QLinearLeakyRelu", alpha=0.2),
    concat,
    gemm,
    lambda: gemm(alpha=0.5, bias=False),
]
SILENT = [
    lambda: Net(x=(1, 3, 8, 8)).conv("x").model(),
    lambda: contrib("QLinearGlobalAveragePool", channels_last=1),
    lambda: contrib("QLinearReduceMean", axes=[2, 3]),
    lambda: gemm(made=False),
]


@pytest.mark.parametrize("build", FIRES)
def test_it_becomes_standard_operators(build):
    """The numbers are onnxruntime's, and no operator of its domain is left."""
    proto = build()
    model = read(proto)
    assert run_pass(NAME, model) >= 1
    assert not [node for node in model.nodes() if node.op.startswith("Q") and node.domain]
    assert CONTRIB not in {opset.domain for opset in model.graph.import_domains or ()}
    same_numbers(proto, model, rtol=RTOL)


def test_an_operator_keeps_its_name():
    """Findings and --keep-float know the node by its name."""
    model = read(operators())
    assert run_pass(NAME, model) == 2
    assert [(n.op, n.name) for n in model.nodes("Conv", "MatMul")] == [
        ("Conv", "conv"),
        ("MatMul", "product"),
    ]


@pytest.mark.parametrize(
    ("build", "reason"),
    [(SILENT[1], "it computes in NHWC"), (SILENT[3], "it makes float, or inputs are missing")],
)
def test_what_stays_is_named(build, reason):
    """The finding shows the reason."""
    ctx = context()
    assert run_pass(NAME, read(build()), ctx) == 0
    assert [record.reason for record in ctx.refusals] == [reason]
