"""Real models, converted: the float arithmetic that stands for int8 gives the same integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import npuconv
from npuconv import executor
from npuconv.evaluate.simulator import as_float
from support.int8_layers import needs_exact_runtime

pytestmark = pytest.mark.e2e

SHARED = Path(__file__).parents[3] / "shared"
SMALL = 2 << 20  # bytes: larger ones take minutes, and so do these
SLOW = {"light_densenet121", "style_candy"}
MODELS = sorted(
    path
    for path in SHARED.glob("models/*/model.onnx")
    if path.stat().st_size < SMALL and path.parent.name not in SLOW
)
SHAPES = {"bodypix_mnv1_050_s16": {"input": (1, 257, 257, 3)}}
KINDS = {1: np.float32, 6: np.int32, 7: np.int64}
INTEGER = ("QLinearConv", "QuantizeLinear")

EXPLICIT = ("mlperf_tiny_ic_resnet8", "ppocr_cls_v2")  # with explicit conversions, too
CASES = [(path, "qoperator") for path in MODELS]
CASES += [(path, "qdq") for path in MODELS if path.parent.name in EXPLICIT]

found = pytest.mark.skipif(not MODELS, reason="no real models beside the project")


def converted(path: Path, form: str) -> onnx.ModelProto:
    """The int8 model; skipped where there is none."""
    shapes = SHAPES.get(path.parent.name, {})
    try:
        return npuconv.convert(
            path, max_samples=2, method="minmax", verify=False, input_shape=shapes, format=form
        ).model
    except npuconv.UnsupportedModelError as error:
        pytest.skip(f"refused: {error}")


def feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Random inputs; 64 (a sound: 576) where an extent is open."""
    rng = np.random.default_rng(0)
    constants = {t.name for t in model.graph.initializer}
    made = {}
    for info in model.graph.input:
        if info.name in constants:
            continue
        kind = info.type.tensor_type
        dims = [d.dim_value if d.dim_value > 0 else 64 for d in kind.shape.dim]
        names = [d.dim_param for d in kind.shape.dim]
        dims = [1 if (k == 0 and d == 64) or names[k] == "batch" else d for k, d in enumerate(dims)]
        dims = [576 if len(dims) == 2 and d == 64 else d for d in dims]
        dtype = KINDS[kind.elem_type]
        values = rng.random(dims) if dtype is np.float32 else np.ones(dims)
        made[info.name] = values.astype(dtype)
    return made


@needs_exact_runtime
@found
@pytest.mark.parametrize(
    ("path", "form"), CASES, ids=[f"{path.parent.name}-{form}" for path, form in CASES]
)
def test_every_integer_is_the_same(path, form):
    """All int8 tensors inside and all outputs, bit by bit."""
    model = converted(path, form)
    nodes = [node for node in model.graph.node if node.op_type in INTEGER]
    inside = [name for node in nodes for name in node.output]
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    there = {o.name for o in model.graph.output}
    extra = [helper.make_empty_tensor_value_info(n) for n in inside if n not in there]
    watched.graph.output.extend(extra)
    x = feeds(model)
    wanted = executor.Session(watched, optimize=False).run(x)
    made = executor.Session(as_float(model, inside), optimize=False).run(x)
    for name, values in wanted.items():
        assert made[name].dtype == values.dtype
        np.testing.assert_array_equal(made[name], values, name)
