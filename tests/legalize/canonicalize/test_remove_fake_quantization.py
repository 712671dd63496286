"""Tests of remove-fake-quantization."""

from __future__ import annotations

import numpy as np
import pytest

from support.asserts import context, read, run_pass, same_numbers
from support.builders import Net
from support.quantized_nets import Quantized, trained

NAME = "remove-fake-quantization"
RTOL = 0.05  # what it takes out rounds
X = (1, 3, 8, 8)


def behind_conv(zero: int, dtype: type = np.int8, opset: int = 17, scale: float = 0.05):
    net = Quantized(x=X, opset=opset).conv("x", pads=[1] * 4)
    assert isinstance(net, Quantized)
    return net.fake(scale, zero, dtype).op("Flatten").model()


def rescaled():
    net = Quantized(x=X)
    net.quantize(0.1)
    net.dequantize(0.2)
    return net.model()


def computed():
    net = Quantized(x=X, s=(1,))
    scale = net.op("ReduceSum", "s", keepdims=0).last
    stored = net.op("QuantizeLinear", "x", scale).last
    return net.op("DequantizeLinear", stored, scale).op("Relu").model()


def constant_weights():
    """Weights that are rounded at each run, as PyTorch's export of training has them."""
    net = Quantized(x=X)
    net.last = net.random(4, 3, 3, 3)
    net.fake(0.004)
    return net.op("Conv", "x", net.last).model()


FIRES = [
    lambda: behind_conv(-128),
    lambda: behind_conv(0, np.uint8),
    lambda: behind_conv(-128, opset=10),
    lambda: behind_conv(3),
    trained,
    constant_weights,
    lambda: Quantized(x=X, opset=21).conv("x").fake(0.004, 5, np.int16).model(),
]
SILENT = [
    rescaled,
    computed,
    lambda: Quantized(x=X).quantize(0.1).model(),
    lambda: Quantized(x=X).fake(0.1).model(),
    lambda: Quantized(x=X).fake(-0.1).op("Relu").model(),
    lambda: Net(x=X).conv("x").model(),
]
NOT_RUNNABLE = [FIRES[4]]  # saturates on numbers of this size


@pytest.mark.parametrize(
    ("zero", "dtype", "ops"),
    [(-128, np.int8, ["Conv", "Clip"]), (0, np.uint8, ["Conv", "Clip"]), (3, np.int8, ["Conv"])],
)
def test_saturation_at_zero_was_a_relu(zero, dtype, ops):
    """A quantizer leaves out the activation that int8 cuts off."""
    model = read(behind_conv(zero, dtype))
    assert run_pass(NAME, model) == 1
    assert [node.op for node in model.nodes()] == [*ops, "Flatten"]


def test_the_scale_is_remembered_as_int8():
    """uint8 and int8 with a zero point 128 less are the same integers."""
    for dtype, zero in ((np.uint8, 131), (np.int8, 3)):
        model = read(behind_conv(zero, dtype))
        assert run_pass(NAME, model) == 1
        (encoding,) = model.source_scales.tensors.values()
        assert (encoding.nominal, encoding.zeros.tolist()) == (np.float32(0.05), [3])


def test_an_output_keeps_its_name():
    """The encoding is of what is left."""
    proto = Quantized(x=X).conv("x").fake(0.05, 3).model()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    assert [tensor.name for tensor in model.graph.outputs] == [proto.graph.output[0].name]
    assert list(model.source_scales.tensors) == [proto.graph.output[0].name]


def test_an_output_of_integers_has_an_encoding():
    """Its scale is kept; nothing is taken out."""
    model = read(Quantized(x=X).conv("x").quantize(0.05, 3).model())
    assert run_pass(NAME, model) == 0
    (encoding,) = model.source_scales.tensors.values()
    assert (encoding.nominal, encoding.zeros.tolist()) == (np.float32(0.05), [3])


def test_sixteen_bits_have_no_encoding_in_int8():
    """The float graph is whole; its range is left to calibration."""
    model = read(FIRES[6]())
    assert run_pass(NAME, model) == 1
    assert list(model.source_scales.lost.values()) == ["it is int16, not 8 bits"]


def test_weights_become_the_integers_that_each_run_made():
    """The rewritten model has the numbers of the original, and no pair around weights."""
    proto = constant_weights()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    assert [node.op for node in model.nodes()] == ["DequantizeLinear", "Conv"]
    same_numbers(proto, model)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (rescaled, "DequantizeLinear 'dequantizelinear1' has another scale or zero point"),
        (computed, "its scale or zero point is computed"),
        (SILENT[3], "it stands between an input and an output of the model"),
        (SILENT[4], "its scale -0.1 is no positive number that float32 holds in full"),
    ],
)
def test_what_stays_is_named(build, reason):
    """The finding shows the reason."""
    ctx = context()
    assert run_pass(NAME, read(build()), ctx) == 0
    assert [record.reason for record in ctx.refusals] == [reason]
