"""ONNX's reference evaluator runs what is written, and computes the same integers.

It follows the texts of the operators and shares nothing with onnxruntime. Nodes of
com.microsoft, which ``--layout nhwc`` writes, are out of its reach.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest

from npuconv import executor
from support.real_models import MODELS, SAMPLES, SLOW, feeds, name_of

pytestmark = pytest.mark.e2e

LARGEST = 50_000_000  # multiplications: larger ones take the evaluator minutes
CASES = [*SAMPLES, *(path for path in MODELS if path.parent.name not in SLOW)]
# Share of values, at least one value, that may be a step away: halves, and sums in float.
TIES = 1e-4


@pytest.mark.parametrize("form", ["qoperator", "qdq"])
@pytest.mark.parametrize("path", CASES, ids=name_of)
def test_every_integer_is_the_same(path, form, conversions):
    """Every 8-bit tensor from the integers before it; ties aside where sums are float."""
    placed = conversions.of(path).report.summary.placement
    if sum(count.macs or 0 for count in placed.values()) > LARGEST:
        pytest.skip("over 50 million multiplications")
    model = conversions.of(path, form).model
    made = [o for n in model.graph.node for o in n.output if o]
    there = {o.name for o in model.graph.output}
    watched = executor.with_outputs(model, [name for name in made if name not in there])
    given = feeds(model)
    expected = executor.Session(watched).run(given)
    integers = [n for n, a in expected.items() if a.dtype in (np.int8, np.uint8)]
    assert integers
    before = {name: expected[name] for name in integers}
    found = executor.run_reference(*reading(watched, given, before))
    distances = {n: np.abs(found[n].astype(int) - expected[n]) for n in integers}
    differing = {n: int((d > 0).sum()) for n, d in distances.items() if d.any()}
    if form == "qoperator" and path in SAMPLES:
        assert not differing
        return
    # A float sum (of the host, or of a convolution between conversions) rounds by the order of
    # addition, and the mean of integers is often exactly half a step.
    assert max(int(d.max(initial=0)) for d in distances.values()) <= 1
    assert sum(differing.values()) <= max(1, TIES * sum(d.size for d in distances.values()))


def reading(
    model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], values: Mapping[str, np.ndarray]
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a model whose nodes read these values instead of those it makes, with its inputs.

    So a tie in one layer is not counted again in all that are behind it.
    """
    cut = onnx.ModelProto()
    cut.CopyFrom(model)
    given = {f"{name}/given": array for name, array in values.items()}
    for node in cut.graph.node:
        read = [f"{name}/given" if name in values else name for name in node.input]
        node.input[:] = read
    for name, array in given.items():
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        cut.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
    return cut, {**feeds, **given}
