"""Tests of unpack-weights."""

from __future__ import annotations

import numpy as np
import pytest

from support.asserts import context, read, run_pass, same_numbers
from support.builders import Net
from support.quantized_nets import Quantized, trained

NAME = "unpack-weights"
X = (1, 3, 8, 8)


def weights_only(scale: object = 0.003, zero: object = 0, dtype: type = np.int8, **attrs):
    net = Quantized(x=X)
    net.op("DequantizeLinear", net.integers(4, 3, 3, 3, dtype=dtype, low=0),
           *net.parameters(scale, zero, dtype), **attrs)  # fmt: skip
    return net.op("Conv", "x", net.last, name="conv").model()


def product(axis: int):
    net = Quantized(x=(2, 4))
    scales = net.parameters([0.001, 0.002, 0.003, 0.004], 0)
    net.op("DequantizeLinear", net.integers(4, 4), *scales, axis=axis)
    return net.op("MatMul", "x", net.last, name="product").model()


def moved(reshape: list[int], perm: list[int], axis: int):
    """Weights that are turned and reshaped behind their conversion."""
    net = Quantized(x=(1, 4, 8, 8))
    scales = net.parameters([0.001, 0.002, 0.003, 0.004], 0)
    net.op("DequantizeLinear", net.integers(3, 3, 4, 1), *scales, axis=axis)
    net.op("Transpose", perm=perm).reshape(reshape)
    return net.op("Conv", "x", net.last, group=4 // reshape[1], name="conv").model()


FIRES = [
    weights_only,
    lambda: weights_only([0.001, 0.002, 0.003, 0.004], axis=0),
    lambda: weights_only(0.003, 12, np.uint8),
    lambda: product(1),
    lambda: product(0),
    trained,
    lambda: moved([4, 1, 3, 3], [3, 2, 0, 1], 2),
    lambda: moved([2, 2, 3, 3], [3, 2, 0, 1], 2),
]
SILENT = [
    lambda: Net(x=X).conv("x").model(),
    lambda: weights_only(0.0),
    lambda: weights_only(np.nan),
    lambda: Quantized(x=X).quantize(0.1).model(),
]


@pytest.mark.parametrize("build", FIRES[:3])
def test_the_layer_gets_float_weights(build):
    """The layer has the float weights of the original conversion."""
    proto = build()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    assert [node.op for node in model.nodes()] == ["Conv"]
    same_numbers(proto, model, rtol=1e-6)
    assert list(model.source_scales.weights) == ["conv"]


def test_scales_run_along_the_outputs():
    """Scales of a product's rows would give no integers of a layer."""
    model = read(product(1))
    run_pass(NAME, model)
    assert model.source_scales.weights["product"].size == 4
    model = read(product(0))
    run_pass(NAME, model)
    assert model.source_scales.lost == {
        "product": "its weights have scales along axis 0, not along their outputs"
    }


def test_scales_are_followed_through_what_moves_weights():
    """Exporters of NHWC leave a Transpose; a Reshape may lose the axis."""
    model = read(FIRES[6]())
    run_pass(NAME, model)
    assert model.source_scales.weights["conv"].size == 4
    model = read(FIRES[7]())
    run_pass(NAME, model)
    assert model.source_scales.lost == {
        "conv": "its weights have scales of several axes, not along their outputs"
    }


def test_a_scale_that_is_no_number_stays():
    """Such a scale is left to fold-constants and to the rule about weights not finite."""
    ctx = context()
    assert run_pass(NAME, read(SILENT[2]()), ctx) == 0
    assert [r.reason for r in ctx.refusals] == [
        "its scale nan is no positive number that float32 holds in full"
    ]
