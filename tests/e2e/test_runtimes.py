"""Other people's runtimes compute our layers; ``make runtimes`` installs and runs them all."""

from __future__ import annotations

import pytest

from support.int8_layers import needs_exact_runtime
from support.judges import JUDGES, is_installed, judged
from support.real_models import SAMPLES

pytestmark = pytest.mark.e2e

READS = {"onnx": ("qoperator", "qdq"), "tract": ("qoperator", "qdq"), "openvino": ("qdq",)}
CASES = [(path, judge, form) for path in SAMPLES for judge in JUDGES for form in READS[judge]]


@needs_exact_runtime
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
