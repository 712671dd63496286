"""Split models run part by part, and give the bits of the whole: samples, and real models."""

from __future__ import annotations

import pytest

from npuconv.evaluate.run_parts import read_manifest, run_parts
from npuconv.evaluate.split import split
from support.int8_layers import needs_exact_runtime
from support.real_models import MODELS, SAMPLES, each, name_of, shapes_of

pytestmark = pytest.mark.e2e

EXPLICIT = [p for p in MODELS if p.parent.name in ("mlperf_tiny_ic_resnet8", "ppocr_cls_v2")]


@needs_exact_runtime
@pytest.mark.parametrize("path", each(*SAMPLES, *MODELS), ids=name_of)
def test_the_parts_are_the_whole(path, tmp_path, conversions):
    """Every output, bit by bit."""
    model = conversions.of(path).model
    if not any(node.op_type == "QLinearConv" for node in model.graph.node):
        pytest.skip("nothing of it runs on the device")
    _compare(path, model, tmp_path)


@needs_exact_runtime
@pytest.mark.parametrize("path", each(*SAMPLES, *EXPLICIT), ids=name_of)
def test_explicit_conversions(path, tmp_path, conversions):
    """Layers in the form ``qdq`` become parts of the device as well."""
    model = conversions.of(path, "qdq").model
    _compare(path, model, tmp_path)
    assert any(part.side == "device" for part in read_manifest(tmp_path).parts)


def _compare(path, model, tmp_path):
    """Split, run the parts and the whole, and count what differs."""
    split(model, tmp_path, emit=["c"])
    found = run_parts(tmp_path, samples=1, whole=model, input_shape=shapes_of(path))
    assert found.differing
    assert not any(found.differing.values())
