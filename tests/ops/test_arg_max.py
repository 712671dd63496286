"""ArgMax and ArgMin in TFLite."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.emit.tflite.translate import translate
from npuconv.errors import ModelError
from npuconv.executor import Session
from support.builders import Net
from support.tflite_files import reference_kernels, stored

SHAPE = (1, 3, 8, 6)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("axis", [1, -1, 2])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_litert_gives_the_first_index(op, axis, keepdims):
    """Values are often equal."""
    model = Net(x=SHAPE).op(op, "x", axis=axis, keepdims=keepdims).model()
    x = np.random.default_rng(3).integers(-2, 3, SHAPE).astype(np.float32)
    translation = translate(model)
    (result,) = reference_kernels(translation.graph, [x.transpose(translation.inputs[0].order)])
    (end,), (expected,) = translation.outputs, Session(model).run({"x": x}).values()
    assert result.dtype == np.int64
    np.testing.assert_array_equal(result, stored(end, expected))


def test_last_index_is_refused():
    with pytest.raises(ModelError, match="select_last_index"):
        translate(Net(x=SHAPE).op("ArgMax", "x", select_last_index=1).model())
