"""Tests of quantize-weights."""

from __future__ import annotations

import numpy as np
import pytest

from asserts import context, read, run, run_pass
from builders import Net
from npuconv.model import save
from plans import converted
from plans import prepare as prepare

NAME = "quantize-weights"


def block(bias: bool = True) -> Net:
    """Convolution, Relu, convolution."""
    net = Net(x=(1, 3, 8, 8)).conv(pads=[1] * 4, bias=bias, name="first").op("Relu")
    return net.conv(weight=(4, 4, 3, 3), bias=bias)


FIRES = [lambda: block().model(), lambda: block(bias=False).model()]
SILENT = [
    lambda: Net(x=(1, 3, 8, 8)).op("Relu").model(),
    lambda: Net(x=(1, 4, 8, 8)).conv(op="ConvTranspose").model(),
]


def test_types_and_ranges():
    """int8 within -127..127, int32 bias, one scale per output channel."""
    model, _, _ = converted(block().model())
    for conv in model.nodes("Conv"):
        weight, bias = (t.inputs[0] for t in conv.inputs[1:])
        values, scales, zeros = (t.values for t in weight.inputs)
        assert (values.dtype, scales.shape, weight.attrs["axis"]) == (np.int8, (4,), 0)
        assert values.min() >= -127
        assert (np.abs(values).reshape(4, -1).max(axis=1) == 127).all()
        assert not zeros.any()
        assert bias.inputs[0].values.dtype == np.int32


def test_the_bias_scale_is_input_times_weight():
    """In float32, as a runtime multiplies it."""
    model, ctx, _ = converted(block().model())
    conv = model.nodes("Conv")[0]
    weight, bias = (t.inputs[0].inputs[1].values for t in conv.inputs[1:])
    assert np.array_equal(bias, ctx.ranges["x"].qparams.scale * weight)


def test_weights_only():
    """Without ranges the bias stays float, and so do the activations."""
    proto = block().model()
    model, ctx = read(proto), context(format="weights")
    prepare(model, ctx)
    ctx.ranges = {}
    assert run_pass(NAME, model, ctx) == 2
    assert run_pass(NAME, model, ctx) == 0
    conv = model.nodes("Conv")[0]
    assert conv.inputs[1].inputs[0].op == "DequantizeLinear"
    assert not conv.inputs[2].inputs
    old, new = run(proto)[0], run(save.to_proto(model))[0]
    assert np.abs(old - new).max() < 0.05 * np.abs(old).max()


def test_a_raised_scale_is_noted():
    """A channel of tiny weights under a large bias would overflow int32."""
    net = Net(x=(1, 1, 4, 4))
    weight = net.constant(np.array([1.0, 1e-9]).reshape(2, 1, 1, 1))
    net.op("Conv", "x", weight, net.constant([0.0, 100.0]), name="conv")
    _, ctx, _ = converted(net.model())
    assert ctx.notes == {"conv": "weight scale of 1 channels raised: int32 would overflow"}


@pytest.mark.parametrize("build", FIRES)
def test_the_numbers_stay_near(build):
    """int8 costs a few percent of the largest output on random weights."""
    proto = build()
    _, _, explicit = converted(proto)
    old, new = run(proto)[0], run(explicit)[0]
    assert np.abs(old - new).max() < 0.1 * np.abs(old).max()
