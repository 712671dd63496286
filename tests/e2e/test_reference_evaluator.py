"""ONNX's reference evaluator runs what is written, and computes the same integers.

It follows the texts of the operators and shares nothing with onnxruntime. Nodes of
com.microsoft, which ``--layout nhwc`` writes, are out of its reach.
"""

from __future__ import annotations

import numpy as np
import pytest

from npuconv import executor
from support.int8_layers import needs_exact_runtime
from support.real_models import MODELS, SAMPLES, SLOW, feeds, name_of

pytestmark = pytest.mark.e2e

LARGEST = 50_000_000  # multiplications: larger ones take the evaluator minutes
CASES = [*SAMPLES, *(path for path in MODELS if path.parent.name not in SLOW)]
TIES = 1e-4  # of the values of a shared model may be a step away: halves, and float sums


@needs_exact_runtime
@pytest.mark.parametrize("form", ["qoperator", "qdq"])
@pytest.mark.parametrize("path", CASES, ids=name_of)
def test_every_integer_is_the_same(path, form, conversions):
    """Every 8-bit tensor inside, and those of the outputs; ties aside where sums are float."""
    placed = conversions.of(path).report.summary.placement
    if sum(count.macs or 0 for count in placed.values()) > LARGEST:
        pytest.skip("over 50 million multiplications")
    model = conversions.of(path, form).model
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
