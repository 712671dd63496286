"""Tests of expand-integer-operators."""

from __future__ import annotations

import numpy as np
import pytest

from support.asserts import context, read, run_pass, same_numbers
from support.builders import Net
from support.quantized_nets import Quantized, integer_operators

NAME = "expand-integer-operators"


def bare():
    """A ConvInteger whose result is not scaled."""
    net = Quantized(x=(1, 3, 8, 8)).quantize(0.1)
    net.op("ConvInteger", net.last, net.integers(4, 3, 3, 3))
    return net.model()


def computed_scale():
    """The scale of the input is an input of the model."""
    net = Quantized(x=(1, 3, 8, 8), s=(1,))
    stored = net.op("QuantizeLinear", "x", net.op("ReduceSum", "s", keepdims=0).last).last
    net.op("ConvInteger", stored, net.integers(4, 3, 3, 3, dtype=np.uint8, low=0))
    net.op("CastLike", net.last, "x")
    return net.model()


FIRES = [integer_operators, lambda: integer_operators(dynamic=True)]
SILENT = [bare, computed_scale, lambda: Net(x=(1, 3, 8, 8)).conv("x").model()]
NOT_RUNNABLE = [FIRES[1]]  # a dynamic scale rounds the input, which the float graph does not


def test_the_weights_stay_integers():
    """Between their own conversion and the convolution, which keeps its name."""
    model = read(integer_operators())
    assert run_pass(NAME, model) == 1
    assert [node.op for node in model.nodes()] == [
        "QuantizeLinear", "DequantizeLinear", "DequantizeLinear", "Conv", "Relu",
    ]  # fmt: skip
    (conv,) = model.nodes("Conv")
    assert conv.name == "conv"
    assert model.origin(conv)[0] == "conv"


def test_a_dynamic_scale_goes():
    """The convolution reads the float input; numbers differ by its rounding only."""
    proto = integer_operators(dynamic=True)
    model = read(proto)
    assert run_pass(NAME, model) == 1
    assert [node.op for node in model.nodes()] == ["DequantizeLinear", "Conv", "Relu"]
    same_numbers(proto, model, rtol=0.02)


@pytest.mark.parametrize("build", [bare, computed_scale])
def test_what_stays_is_named(build):
    """The finding shows the reason."""
    ctx = context()
    assert run_pass(NAME, read(build()), ctx) == 0
    (record,) = ctx.refusals
    assert record.reason == "no Cast and Mul by its scales follow it"
