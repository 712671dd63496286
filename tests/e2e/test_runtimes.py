"""Other people's runtimes compute our layers; ``make runtimes`` installs and runs them all."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

from npuconv import executor
from support.judges import JUDGES, READS, is_installed, judged
from support.real_models import SAMPLES

pytestmark = pytest.mark.e2e

CASES = [(path, judge, form) for path in SAMPLES for judge in JUDGES for form in READS[judge]]


@pytest.mark.parametrize(
    ("path", "judge", "form"), CASES, ids=[f"{p.parent.name}-{j}-{f}" for p, j, f in CASES]
)
def test_each_layer_alone(path, judge, form, conversions):
    """At most one step away, and seldom; the specification itself: not at all."""
    if not is_installed(judge):
        pytest.skip(f"{judge} is not installed; make runtimes installs it")
    found = judged(conversions.of(path, form).model, judge)
    share = found.differing / max(found.values, 1)
    assert found.layers > 0
    assert found.refused == 0, found.reason
    assert found.furthest <= (0 if judge == "onnx" else 1)
    assert share < 0.01


@pytest.mark.skipif(not is_installed("openvino"), reason="openvino is not installed")
def test_openvino_does_not_read_integer_operators(conversions):
    """OpenVINO takes the scales of weights along the wrong axis: refused at best. See docs."""
    found = judged(conversions.of(SAMPLES[0]).model, "openvino")
    assert found.refused or found.furthest > 1


def with_weights(text: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a model with random weights for its last input, and integers for the inputs."""
    model, rng = onnx.parser.parse_model(text), np.random.default_rng(0)
    weight = rng.integers(-127, 128, (4, 4, 3, 3)).astype(np.int8)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    del model.graph.input[-1]
    names = [value.name for value in model.graph.input]
    return model, {n: rng.integers(-128, 128, (1, 4, 8, 8)).astype(np.int8) for n in names}


RESIDUAL = """<ir_version: 10, opset_import: ["" : 21]>
net (int8[1, 4, 8, 8] x, int8[1, 4, 8, 8] r, int8[4, 4, 3, 3] w) => (int8[1, 4, 8, 8] y)
<float a = {0.05}, float b = {0.003}, float c = {0.11}, float d = {0.13}, int8 z = {0}>
{
  x1 = DequantizeLinear (x, a, z)
  w1 = DequantizeLinear (w, b, z)
  c1 = Conv <pads: ints = [1, 1, 1, 1]> (x1, w1)
  c2 = QuantizeLinear (c1, c, z)
  c3 = DequantizeLinear (c2, c, z)
  r1 = DequantizeLinear (r, a, z)
  s = Add (r1, c3)
  y = QuantizeLinear (s, d, z)
}"""


@pytest.mark.skipif(not is_installed("openvino"), reason="openvino is not installed")
@pytest.mark.parametrize(("transformations", "wrong"), [("YES", True), ("NO", False)])
def test_openvino_leaves_a_rounding_out(tmp_path, transformations, wrong):
    """Between a convolution and an addition its low precision transformations do not round."""
    import openvino

    model, feeds = with_weights(RESIDUAL)
    onnx.save(model, tmp_path / "m.onnx")
    hints = {"INFERENCE_PRECISION_HINT": "f32", "LP_TRANSFORMS_MODE": transformations}
    theirs = openvino.Core().compile_model(str(tmp_path / "m.onnx"), "CPU", hints)(feeds)[0]
    ours = executor.run_reference(model, feeds)["y"]
    assert bool((theirs != ours).any()) == wrong
    assert np.abs(theirs.astype(int) - ours).max() <= 1


BETWEEN = """<ir_version: 10, opset_import: ["" : 21]>
net (int8[1, 4, 8, 8] x, int8[4, 4, 3, 3] w) => (int8[1, 4, 4, 4] y)
<float a = {0.05}, float b = {0.003}, int8 n = {0}, int8 z = {-128}>
{
  x1 = DequantizeLinear (x, a, n)
  w1 = DequantizeLinear (w, b, n)
  c1 = Conv (x1, w1)
  c2 = QuantizeLinear (c1, a, z)
  c3 = DequantizeLinear (c2, a, z)
  c4 = Conv (c3, w1)
  y = QuantizeLinear (c4, a, z)
}"""


@pytest.mark.skipif(not is_installed("openvino"), reason="openvino is not installed")
@pytest.mark.parametrize("transformations", ["YES", "NO"])
def test_zero_points_between_convolutions(tmp_path, transformations):
    """With its low precision transformations, OpenVINO has no kernel for some processors."""
    import openvino

    model, feeds = with_weights(BETWEEN)
    onnx.save(model, tmp_path / "m.onnx")
    hints = {"INFERENCE_PRECISION_HINT": "f32", "LP_TRANSFORMS_MODE": transformations}
    try:
        compiled = openvino.Core().compile_model(str(tmp_path / "m.onnx"), "CPU", hints)
    except RuntimeError as error:
        assert transformations == "YES"
        assert "No suitable implementations" in str(error)
    else:
        theirs, ours = compiled(feeds)[0], executor.run_reference(model, feeds)["y"]
        assert np.abs(theirs.astype(int) - ours).max() <= 1
