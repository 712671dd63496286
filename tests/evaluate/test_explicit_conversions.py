"""Explicit conversions that compilers of devices refuse."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import npuconv
from npuconv.evaluate.verify import conversion_faults
from npuconv.target import builtin_names
from support.builders import Net

X = (1, 3, 12, 12)
SAMPLES = {"x": np.random.default_rng(0).normal(size=(8, *X[1:])).astype(np.float32)}


def network() -> Net:
    """Padded and plain convolutions, a depthwise one, a sum, and an operator of the host."""
    net = Net(x=X).conv("x", (8, 3, 3, 3), pads=[1] * 4).op("Relu", to="a")
    net.conv("a", (8, 1, 3, 3), group=8, pads=[1] * 4).op("Clip", to="b")
    net.op("Add", "a", "b", to="c").op("Sin", "c", to="d")
    return net.conv("d", (4, 8, 3, 3)).op("MaxPool", kernel_shape=[2, 2])


@pytest.mark.parametrize("target", builtin_names())
@pytest.mark.parametrize("io", ["float", "int8"])
def test_the_format_qdq_has_none(target, io):
    """For each device, whether or not it takes zero points."""
    result = npuconv.convert(network().model(), target, calibration=SAMPLES, format="qdq", io=io)
    assert list(conversion_faults(result.model)) == []
    assert result.report.accuracy.sqnr_db > 25


def explicit(**scalars: np.ndarray) -> onnx.ModelProto:
    """A tensor that is quantized and dequantized; ``scalars`` replace scales and zero points."""
    scale, zero = np.float32(0.1), np.int8(3)
    values = {"s": scale, "z": zero, "t": scale, "u": zero} | scalars
    net = Net(x=X)
    names = {name: net.constant(value) for name, value in values.items()}
    net.op("QuantizeLinear", "x", names["s"], names["z"], to="q", name="Q")
    return net.op("DequantizeLinear", "q", names["t"], names["u"], name="D").model()


FAULTS = [
    ({"t": np.float32(0.2)}, ["D: another scale or zero point than Q in front of it"]),
    ({"u": np.int8(4)}, ["D: another scale or zero point than Q in front of it"]),
    (
        {"s": np.ones(3, np.float32), "z": np.zeros(3, np.int8)},
        ["Q: not one constant scale and zero point for the whole tensor",
         "D: another scale or zero point than Q in front of it"],
    ),
    ({}, []),
]  # fmt: skip


@pytest.mark.parametrize(("scalars", "sentences"), FAULTS)
def test_conversions_of_one_tensor(scalars, sentences):
    """Equal scalars are right."""
    assert list(conversion_faults(explicit(**scalars))) == sentences


def test_verify_warns():
    """The first fault stands in the warning."""
    model = Net(x=X).op("Identity", "x").model()
    model.graph.output[0].name = model.graph.node[-1].output[0]
    odd = explicit(t=np.float32(0.2))
    odd.graph.node[-1].output[0] = odd.graph.output[0].name = model.graph.output[0].name
    report = npuconv.verify(model, odd, SAMPLES)
    assert "compilers of devices refuse 1 conversion: D: another scale" in report.warnings[-1]
