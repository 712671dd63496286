"""Real models, converted: the float arithmetic that stands for int8 gives the same integers."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv import executor
from npuconv.evaluate.simulator import as_float
from support.real_models import MODELS, SLOW, feeds, needs_models

pytestmark = pytest.mark.e2e

SMALL = 2 << 20  # bytes: larger ones take minutes
INTEGER = ("QLinearConv", "QuantizeLinear")
SMALL_MODELS = [
    path for path in MODELS if path.stat().st_size < SMALL and path.parent.name not in SLOW
]
EXPLICIT = ("mlperf_tiny_ic_resnet8", "ppocr_cls_v2")  # with explicit conversions, too
CASES = [(path, "qoperator") for path in SMALL_MODELS]
CASES += [(path, "qdq") for path in SMALL_MODELS if path.parent.name in EXPLICIT]


@needs_models
@pytest.mark.parametrize(
    ("path", "form"), CASES, ids=[f"{path.parent.name}-{form}" for path, form in CASES]
)
def test_every_integer_is_the_same(path, form, conversions):
    """All int8 tensors inside and all outputs, bit by bit."""
    model = conversions.of(path, form).model
    nodes = [node for node in model.graph.node if node.op_type in INTEGER]
    inside = [name for node in nodes for name in node.output]
    watched = executor.with_outputs(model, inside)
    x = feeds(model)
    wanted = executor.Session(watched, optimize=False).run(x)
    made = executor.Session(as_float(model, inside), optimize=False).run(x)
    for name, values in wanted.items():
        assert made[name].dtype == values.dtype
        np.testing.assert_array_equal(made[name], values, name)
