"""ONNX's reference evaluator runs what is written, and computes the same integers.

It follows the texts of the operators and shares nothing with onnxruntime. Nodes of
com.microsoft, which ``--layout nhwc`` writes, are out of its reach.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import npuconv
from npuconv import executor
from support.int8_layers import needs_exact_runtime

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
SAMPLES = sorted(ROOT.glob("samples/*/model.onnx"))
SHARED = sorted((ROOT.parent / "shared").glob("models/*/model.onnx"))
LARGEST = 50_000_000  # multiplications: larger ones take the evaluator minutes
TIES = 1e-4  # of the values of a shared model may be a step away: halves, and float sums
SHAPES = {
    "bodypix_mnv1_050_s16": {"input": (1, 257, 257, 3)},
    "ppocrv4_rec": {"x": (1, 3, 48, 320)},
    "silero_vad_op15": {"input": (1, 576), "state": (2, 1, 128)},
}
CASES = [(path, form) for path in (*SAMPLES, *SHARED) for form in ("qoperator", "qdq")]


def feeds(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Random inputs; 64 (a sound: 576) where an extent is open, one sample at a time."""
    rng = np.random.default_rng(0)
    constants = {t.name for t in model.graph.initializer}
    made = {}
    for info in model.graph.input:
        kind = info.type.tensor_type
        dims = [d.dim_value if d.dim_value > 0 else 0 for d in kind.shape.dim]
        # A state has its samples along the second of three axes.
        sizes = {2: [1, 576], 3: [1, 1, 64]}.get(len(dims), [1] + [64] * (len(dims) - 1))
        dims = [size or sizes[axis] for axis, size in enumerate(dims)]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        values = rng.random(dims) if dtype.kind == "f" else np.ones(dims)
        if info.name not in constants:
            made[info.name] = values.astype(dtype)
    return made


@needs_exact_runtime
@pytest.mark.parametrize(
    ("path", "form"), CASES, ids=[f"{path.parent.name}-{form}" for path, form in CASES]
)
def test_every_integer_is_the_same(path, form):
    """Every 8-bit tensor inside, and those of the outputs; ties aside where sums are float."""
    shapes = SHAPES.get(path.parent.name, {})
    try:
        placed = npuconv.check(path, input_shape=shapes, verify=False).summary.placement
        if sum(count.macs or 0 for count in placed.values()) > LARGEST:
            pytest.skip("over 50 million multiplications")
        model = npuconv.convert(
            path, format=form, max_samples=2, method="minmax", verify=False, input_shape=shapes
        ).model
    except npuconv.UnsupportedModelError as error:
        pytest.skip(f"refused: {error}")
    made = [o for n in model.graph.node for o in n.output if o]
    there = {o.name for o in model.graph.output}
    watched = executor.with_outputs(model, [name for name in made if name not in there])
    given = feeds(model)
    expected = executor.Session(watched).run(given)
    found = executor.run_reference(watched, given)
    integers = [n for n, a in expected.items() if a.dtype in (np.int8, np.uint8)]
    assert integers
    distances = {n: np.abs(found[n].astype(int) - expected[n]) for n in integers}
    differing = {n: int((d > 0).sum()) for n, d in distances.items() if d.any()}
    if form == "qoperator" and path in SAMPLES:
        assert not differing
        return
    # A float sum (of the host, or of a convolution between conversions) rounds by the order of
    # addition, and the mean of integers is often exactly half a step.
    assert max(int(d.max(initial=0)) for d in distances.values()) <= 1
    # What differs in one tensor goes on into those behind it, so the worst one is counted.
    most = max(differing.values(), default=0)
    assert most <= TIES * sum(d.size for d in distances.values())
