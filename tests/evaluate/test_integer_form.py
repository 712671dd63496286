"""Conversions around a convolution are read as integers, where a device would read them so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import npuconv
from npuconv.evaluate.integer_form import in_integers
from npuconv.evaluate.pairs import open_model
from npuconv.executor import Session
from support.asserts import run
from support.builders import Net
from support.int8_pairs import integer_model
from support.partial_sums import ADDS, CASES, convert
from support.quantized_nets import Quantized

X = (1, 3, 8, 8)


def ops(model: onnx.ModelProto) -> Counter[str]:
    """Count the operators of a model."""
    return Counter(node.op_type for node in model.graph.node)


def one_layer(
    *between: str,
    zero: int = 0,
    dtype: type = np.int8,
    bias: float = 1.0,
    pooled: bool = False,
    weight: tuple[float, ...] = (0.01, 0.02, 0.03, 0.04),
    **attrs: object,
) -> onnx.ModelProto:
    """A convolution between conversions, with operators behind it.

    Args:
        between: operators between the convolution and its conversion.
        zero: point of the result.
        dtype: of the result.
        bias: what the scale of the bias is multiplied by.
        pooled: whether a MaxPool between conversions follows.
        weight: scales.
        attrs: of the convolution.
    """
    net = Quantized(x=X).fake(0.031, 3)
    source, scales = net.last, np.asarray(weight, np.float32)
    values = [net.integers(4, 3, 3, 3), net.integers(4, dtype=np.int32)]
    kinds = ((np.int8, scales), (np.int32, np.float32(0.031) * scales * np.float32(bias)))
    opened = []
    for name, (kind, scale) in zip(values, kinds, strict=True):
        net.last = name
        net.dequantize(scale, 0, kind, axis=0)
        opened.append(net.last)
    net.op("Conv", source, *opened, name="conv", **attrs)
    for op in between:
        net.op(op, name=op)
    net.fake(0.173, zero, dtype)
    if pooled:
        net.op("MaxPool", kernel_shape=[2, 2])
        net.fake(0.173, zero, dtype)
    return net.model()


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (one_layer(), {"QLinearConv": 1}),
        (one_layer("Relu"), {"QLinearConv": 1, "Relu": 1}),
        (one_layer("Relu", zero=-128), {"QLinearConv": 1, "Clip": 1}),
        (one_layer("Relu", zero=5), {"QLinearConv": 1, "Clip": 1}),
    ],
)
def test_the_integers(model, expected):
    """Integers are those of the explicit conversions, but for sums on a tie."""
    found = in_integers(open_model(model)).proto
    onnx.checker.check_model(found, full_check=True)
    assert ops(found) == {"QuantizeLinear": 1, "DequantizeLinear": 1, **expected}
    x = {"x": np.random.default_rng(0).normal(size=X).astype(np.float32)}
    (ours,), (theirs,) = (
        list(Session(one, optimize=False).run(x).values()) for one in (found, model)
    )
    assert np.abs(theirs).max() > 0
    assert (np.abs(ours - theirs) > 1e-4).mean() < 0.01


def test_a_pool_between_conversions():
    """A pool, which only compares integers, runs on them."""
    found = ops(in_integers(open_model(one_layer(pooled=True))).proto)
    assert found == {"QuantizeLinear": 1, "QLinearConv": 1, "MaxPool": 1, "DequantizeLinear": 1}


@pytest.mark.parametrize(
    "model",
    [
        one_layer(dtype=np.uint8),
        one_layer(bias=2.0),
        one_layer(auto_pad="SAME_UPPER"),
        one_layer("Sigmoid"),
        Net(x=X).conv("x").model(),
        integer_model(),
    ],
)
def test_left_as_it_is(model):
    """Other types, a bias of another scale, pads that are not numbers, floats in between."""
    opened = open_model(model)
    assert in_integers(opened) is opened


def test_both_forms_are_one():
    """A converted model has the same integer operators in either form, and nearly its outputs."""
    net = Net(x=X).conv("x", pads=[1] * 4).op("Relu").op("MaxPool", kernel_shape=[2, 2])
    model = net.conv("", (5, 4, 1, 1)).op("Clip", net.last, net.constant(0.0), net.constant(6.0))
    data = {"x": np.random.default_rng(0).normal(size=(4, *X[1:])).astype(np.float32)}
    made = [
        npuconv.convert(model.model(), "rknn", calibration=data, format=form, verify=False).model
        for form in ("qoperator", "qdq")
    ]
    found = in_integers(open_model(made[1])).proto
    # The form qdq multiplies channels at inputs and outputs, where qoperator has their scales.
    assert {op: n for op, n in ops(found).items() if op not in ("Mul", "Add")} == ops(made[0])
    x = {"x": data["x"][:1]}
    both = [list(Session(one, optimize=False).run(x).values()) for one in (made[0], found)]
    assert_nearly_equal(*both)


def assert_nearly_equal(expected: Sequence[np.ndarray], found: Sequence[np.ndarray]) -> None:
    """All values are equal to 5 digits, but for a hundredth, which another rounding moves."""
    for a, b in zip(expected, found, strict=True):
        assert (np.abs(a - b) > 1e-5 * np.abs(a).max()).mean() < 0.01


@pytest.mark.parametrize(("net", "limits"), CASES)
def test_sums_of_parts_are_added_in_int32(tmp_path: Path, net: Net, limits: dict[str, Any]):
    """Parts of a layer are those of the form qoperator, with its integers."""
    forms = ("qoperator", "qdq")
    first, second = (
        convert(tmp_path, net.model(), ADDS, limits, format=form).model for form in forms
    )
    read = in_integers(open_model(second)).proto
    counts = [ops(m)["ConvInteger"] for m in (first, read)]
    assert counts[0] == counts[1] > 0
    assert not ops(read)["Conv"]
    assert_nearly_equal(run(first), run(read))
