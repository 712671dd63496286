"""Split models run part by part, and give the bits of the whole: samples, and real models."""

from __future__ import annotations

from pathlib import Path

import pytest

import npuconv
from npuconv.evaluate.run_parts import run_parts
from npuconv.evaluate.split import split
from support.int8_layers import needs_exact_runtime

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
SAMPLES = sorted(ROOT.glob("samples/*/model.onnx"))
SHARED = sorted((ROOT.parent / "shared").glob("models/*/model.onnx"))
SHAPES = {
    "bodypix_mnv1_050_s16": {"input": (1, 257, 257, 3)},
    "ppocrv4_rec": {"x": (1, 3, 48, 320)},
    "silero_vad_op15": {"input": (1, 576), "state": (2, 1, 128)},
}


@needs_exact_runtime
@pytest.mark.parametrize("path", [*SAMPLES, *SHARED], ids=lambda path: path.parent.name)
def test_the_parts_are_the_whole(path, tmp_path):
    """Every output, bit by bit."""
    shapes = SHAPES.get(path.parent.name, {})
    try:
        model = npuconv.convert(
            path, max_samples=2, method="minmax", verify=False, input_shape=shapes
        ).model
    except npuconv.UnsupportedModelError as error:
        pytest.skip(f"refused: {error}")
    if not any(node.op_type == "QLinearConv" for node in model.graph.node):
        pytest.skip("nothing of it runs on the device")
    split(model, tmp_path, emit=["c"])
    found = run_parts(tmp_path, samples=1, whole=model, input_shape=shapes)
    assert found.differing
    assert not any(found.differing.values())
