"""Vendors' tools, where they are installed (docs/verify.md), on files that are made for them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from npuconv.errors import UsageError
from npuconv.evaluate.verify import verify
from npuconv.vendors.tool import VendorTool
from support.builders import Net, images

pytestmark = pytest.mark.e2e


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


def pair() -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """A convolution in float, and with conversions of one encoding per tensor."""
    weight = np.random.default_rng(3).normal(size=(8, 3, 3, 3)).astype(np.float32) / 5
    floats = Net(opset=17, x=(1, 3, 8, 8))
    floats.op("Conv", "x", floats.constant(weight), name="conv", to="y").output("y")
    net = Net(opset=17, x=(1, 3, 8, 8))
    scale, zero = net.constant(np.float32(1 / 64)), net.constant(np.int8(3))
    net.op("QuantizeLinear", "x", scale, zero).op("DequantizeLinear", net.last, scale, zero, to="d")
    step = net.constant(np.float32(abs(weight).max() / 127))
    stored = net.constant(np.rint(weight / (abs(weight).max() / 127)).astype(np.int8))
    net.op("DequantizeLinear", stored, step, net.constant(np.int8(0)), to="w")
    net.op("Conv", "d", "w", name="conv", to="c")
    scale, zero = net.constant(np.float32(1 / 32)), net.constant(np.int8(-5))
    net.op("QuantizeLinear", "c", scale, zero).op("DequantizeLinear", net.last, scale, zero, to="y")
    return floats.model(), net.output("y").model()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=installed(name)) for name in ("qnn", "rknn", "openvino")]
)
def test_a_convolution(name):
    """Accepted, and at most two steps away from our integers."""
    report = verify(*pair(), {"x": images(4, 3, 8, 8)}, vendor=name).vendor
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


@installed("rknn")
def test_rknn_quantizes_a_float_model():
    floats, _ = pair()
    report = verify(floats, floats, {"x": images(4, 3, 8, 8)}, vendor="rknn:rk3566").vendor
    assert (report.verdict, report.chip, report.devices) == ("accepted", "rk3566", {"NPU": 1})
    assert report.outputs[0].differences is None
    assert report.outputs[0].sqnr_db > 20
