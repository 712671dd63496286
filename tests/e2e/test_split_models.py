"""Split models run part by part, and give the bits of the whole: samples, and real models."""

from __future__ import annotations

import pytest

from npuconv.evaluate.run_parts import run_parts
from npuconv.evaluate.split import split
from support.int8_layers import needs_exact_runtime
from support.real_models import MODELS, SAMPLES, each, name_of, shapes_of

pytestmark = pytest.mark.e2e


@needs_exact_runtime
@pytest.mark.parametrize("path", each(*SAMPLES, *MODELS), ids=name_of)
def test_the_parts_are_the_whole(path, tmp_path, conversions):
    """Every output, bit by bit."""
    model = conversions.of(path).model
    if not any(node.op_type == "QLinearConv" for node in model.graph.node):
        pytest.skip("nothing of it runs on the device")
    split(model, tmp_path, emit=["c"])
    found = run_parts(tmp_path, samples=1, whole=model, input_shape=shapes_of(path))
    assert found.differing
    assert not any(found.differing.values())
