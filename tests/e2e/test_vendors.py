"""Vendors' tools, where they are installed (docs/verify.md), on files that are made for them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from npuconv.errors import UsageError
from npuconv.evaluate.verify import verify
from npuconv.vendors.learn import Verdict, ask_tool
from npuconv.vendors.probes import BASES, case_of, model_of
from npuconv.vendors.tool import Question, VendorTool
from support.builders import Net, images

pytestmark = pytest.mark.e2e
SMALL = next(iter(BASES.values()))


def is_missing(name: str) -> bool:
    """Return whether a tool is not installed."""
    try:
        VendorTool.find(name)
    except UsageError:
        return True
    return False


def installed(name: str) -> pytest.MarkDecorator:
    """Skip a test where a tool is not installed."""
    return pytest.mark.skipif(is_missing(name), reason=f"{name} is not installed; docs/verify.md")


def pair(zeros: tuple[int, int] = (3, -5)) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """A convolution in float, and with conversions of one encoding per tensor."""
    weight = np.random.default_rng(3).normal(size=(8, 3, 3, 3)).astype(np.float32) / 5
    floats = Net(opset=17, x=(1, 3, 8, 8))
    floats.op("Conv", "x", floats.constant(weight), name="conv", to="y").output("y")
    net = Net(opset=17, x=(1, 3, 8, 8))
    scale, zero = net.constant(np.float32(1 / 64)), net.constant(np.int8(zeros[0]))
    net.op("QuantizeLinear", "x", scale, zero).op("DequantizeLinear", net.last, scale, zero, to="d")
    step = net.constant(np.float32(abs(weight).max() / 127))
    stored = net.constant(np.rint(weight / (abs(weight).max() / 127)).astype(np.int8))
    net.op("DequantizeLinear", stored, step, net.constant(np.int8(0)), to="w")
    net.op("Conv", "d", "w", name="conv", to="c")
    scale, zero = net.constant(np.float32(1 / 32)), net.constant(np.int8(zeros[1]))
    net.op("QuantizeLinear", "c", scale, zero).op("DequantizeLinear", net.last, scale, zero, to="y")
    return floats.model(), net.output("y").model()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=installed(name)) for name in ("qnn", "rknn", "openvino")]
)
def test_a_convolution(name):
    """Accepted, and at most two steps away from our integers."""
    zeros = (0, 0) if name == "openvino" else (3, -5)  # others have no kernel: docs/runtimes.md
    report = verify(*pair(zeros), {"x": images(4, 3, 8, 8)}, vendor=name).vendor
    assert (report.verdict, report.message) == ("accepted", "")
    assert report.outputs[0].step == 1 / 32
    assert report.outputs[0].largest <= 2
    assert report.outputs[0].sqnr_db > 20


@installed("qnn")
def test_qnn_names_the_refused_node():
    """An operator that it does not know, in the middle."""
    floats, model = pair()
    model.graph.node[-1].output[0] = "f"
    model.graph.node.append(onnx.helper.make_node("Det", ["f"], ["y"], name="determinant"))
    floats.graph.node[-1].output[0] = "f"
    floats.graph.node.append(onnx.helper.make_node("Det", ["f"], ["y"]))
    report = verify(floats, model, {"x": images(2, 3, 8, 8)}, vendor="qnn").vendor
    assert report.verdict == "refused"
    assert "determinant" in {layer.name for layer in report.layers}
    assert all(layer.reason for layer in report.layers)


@installed("qnn")
def test_integers_of_qnn():
    """A 1x1 convolution of two channels; its sums are all integers of 15 bits."""
    factors = np.geomspace(2**-11.9, 2**-4.1, 12).astype(np.float32)
    net = Net(opset=17, x=(1, 2, 128, 256))
    one, zero = net.constant(np.float32(1)), net.constant(np.int8(0))
    net.op("QuantizeLinear", "x", one, zero).op("DequantizeLinear", net.last, one, zero, to="d")
    weight = np.tile(np.int8([127, 1]).reshape(1, 2, 1, 1), (len(factors), 1, 1, 1))
    net.op("DequantizeLinear", net.constant(weight), net.constant(factors), to="w", axis=0)
    net.op("Conv", "d", "w", to="c").op("QuantizeLinear", "c", one, zero)
    model = net.op("DequantizeLinear", net.last, one, zero, to="y").output("y").model()
    columns, rows = np.meshgrid(np.arange(-128, 128), np.arange(-64, 64))
    x = np.stack([columns, rows])[None].astype(np.float32)
    _, (reply,) = VendorTool.find("qnn").ask(
        [Question(model.SerializeToString(), ["x"], [{"x": x}], 1)]
    )
    ((result,),) = reply.outputs
    sums, factors = 127 * columns + rows, factors.astype(np.float64).reshape(-1, 1, 1)
    shifts = -4 - np.floor(np.log2(factors)).astype(int)
    multipliers = np.rint(np.ldexp(factors, shifts + 15))
    cut = (sums >> shifts) + 0.5
    assert np.array_equal(result[0], np.floor(cut * multipliers / 2**15 + 0.5).clip(-128, 127))
    exact = np.rint(sums * factors).clip(-128, 127)
    assert 0.01 < np.mean(result[0] != exact) < 0.04
    assert np.abs(result[0] - exact).max() == 1


@installed("rknn")
@pytest.mark.parametrize("is_quantized", [True, False])
def test_rknn_names_the_layers_of_a_split(is_quantized):
    """One layer up to a height of 16, then more, of models in float and in qdq."""
    cases = [case_of("Conv", "", SMALL, "kernel_h", value) for value in (16, 17)]
    models = [(model_of("Conv", case, is_quantized=is_quantized), case) for case in cases]
    whole, split = ask_tool(VendorTool.find("rknn"), models, is_quantized=is_quantized)
    assert whole == Verdict(True)
    assert (split.is_accepted, "Slice" in split.layers) == (True, True)


@installed("rknn")
def test_rknn_quantizes_a_float_model():
    floats, _ = pair()
    report = verify(floats, floats, {"x": images(4, 3, 8, 8)}, vendor="rknn:rk3566").vendor
    assert (report.verdict, report.chip, report.devices) == ("accepted", "rk3566", {"NPU": 1})
    assert report.outputs[0].differences is None
    assert report.outputs[0].sqnr_db > 20
