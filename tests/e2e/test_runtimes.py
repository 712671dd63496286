"""Other people's runtimes compute our layers; ``make runtimes`` installs and runs them all."""

from __future__ import annotations

from pathlib import Path

import pytest

import npuconv
from support.int8_layers import needs_exact_runtime
from support.judges import JUDGES, is_installed, judged

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
SAMPLES = sorted(ROOT.glob("samples/*/model.onnx"))
READS = {"onnx": ("qoperator", "qdq"), "tract": ("qoperator", "qdq"), "openvino": ("qdq",)}
CASES = [(path, judge, form) for path in SAMPLES for judge in JUDGES for form in READS[judge]]


@needs_exact_runtime
@pytest.mark.parametrize(
    ("path", "judge", "form"), CASES, ids=[f"{p.parent.name}-{j}-{f}" for p, j, f in CASES]
)
def test_each_layer_alone(path, judge, form):
    """At most one step away, and seldom; the specification itself: not at all."""
    if not is_installed(judge):
        pytest.skip(f"{judge} is not installed; make runtimes installs it")
    data = str(path.parent / "calibration.npz")
    model = npuconv.convert(path, calibration=data, format=form, verify=False).model
    found = judged(model, judge)
    share = found.differing / max(found.values, 1)
    assert found.layers > 0
    assert found.refused == 0, found.reason
    assert found.furthest <= (0 if judge == "onnx" else 1)
    assert share < 0.01


@pytest.mark.skipif(not is_installed("openvino"), reason="openvino is not installed")
def test_openvino_does_not_read_integer_operators():
    """OpenVINO takes the scales of weights along the wrong axis: refused at best. See docs."""
    data = str(SAMPLES[0].parent / "calibration.npz")
    found = judged(npuconv.convert(SAMPLES[0], calibration=data, verify=False).model, "openvino")
    assert found.refused or found.furthest > 1
