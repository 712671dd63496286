"""Tests of write-zero-points."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from npuconv.model import query
from support.asserts import read, run_pass, same_numbers
from support.builders import Net

NAME = "write-zero-points"


def stored(dtype: type = np.int8, shape: tuple[int, ...] = (), **attrs: int) -> onnx.ModelProto:
    """A tensor of integers, whose DequantizeLinear has no zero point."""
    net = Net(x=(1, 3, 5))
    scale = net.constant(np.full(shape, 0.05, np.float32))
    net.op("QuantizeLinear", "x", scale, net.constant(np.zeros(shape, dtype)), **attrs)
    return net.op("DequantizeLinear", net.last, scale, **attrs).op("Relu").model()


def weights() -> onnx.ModelProto:
    """Weights, which no optimizer quantizes again."""
    net = Net(x=(1, 3, 5))
    net.op("DequantizeLinear", net.constant(np.ones((1, 3, 5), np.int8)), net.constant(0.5))
    return net.op("Add", "x", net.last).model()


FIRES = [stored, lambda: stored(shape=(3,), axis=1)]
SILENT = [
    lambda: stored(np.uint8),
    weights,
    lambda: Net(x=(1, 3, 5)).op("Relu").model(),
]


@pytest.mark.parametrize("example", FIRES)
def test_a_zero_for_every_scale(example):
    """The zero point has the type of the integers, and the shape of the scales."""
    model = read(example())
    assert run_pass(NAME, model) == 1
    (node,) = model.nodes("DequantizeLinear")
    zeros, scale = query.constant_input(node, 2), query.constant_input(node, 1)
    assert (zeros.dtype.name, zeros.shape, zeros.any()) == ("int8", scale.shape, np.False_)
    same_numbers(example(), model)
