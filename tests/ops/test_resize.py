"""Linear Resize against onnxruntime in float."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from npuconv.arithmetic.encoding import quantize
from npuconv.errors import ModelError
from npuconv.ops.resize import interpolation
from support.kernels import BOTH, FEW, SCALES, SEEDS, assert_near, computed, numbers, stored


@BOTH
@FEW
@given(x_at=SCALES, y_at=SCALES, seed=SEEDS, size=st.tuples(st.integers(1, 9), st.integers(1, 9)))
@pytest.mark.parametrize(
    "mode", ["half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners"]
)
def test_linear_resize_is_float_rounded_once(how, mode, x_at, y_at, seed, size):
    """The reference is onnx's float operator of the runtime."""
    x = stored(seed, 1, 2, 4, 5)
    resized = float_resize(numbers(x, x_at).astype(np.float32), (1, 2, *size), mode)
    attributes = {"sizes": [1, 2, *size], "coordinate_transformation_mode": mode}
    ours = computed("Resize", (x,), (x_at, y_at), how, **attributes)
    assert_near(ours, quantize(resized, y_at.scale, y_at.zero))


def float_resize(x: np.ndarray, sizes: tuple[int, ...], mode: str) -> np.ndarray:
    """Return the runtime's linear interpolation of numbers."""
    made = [numpy_helper.from_array(v, n) for v, n in ((x, "x"), (np.asarray(sizes), "sizes"))]
    node = helper.make_node(
        "Resize",
        ["x", "", "", "sizes"],
        ["y"],
        mode="linear",
        coordinate_transformation_mode=mode,
    )
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "one", [], [out], made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return np.asarray(session.run(None, {})[0])


def test_interpolation_refuses_what_it_does_not_know():
    with pytest.raises(ModelError, match="tf_crop_and_resize"):
        interpolation(4, 8, "tf_crop_and_resize")
    corners = interpolation(3, 5, "align_corners")
    np.testing.assert_allclose(corners @ [0.0, 1.0, 2.0], [0, 0.5, 1, 1.5, 2])
