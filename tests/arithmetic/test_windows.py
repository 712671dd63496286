"""Windows of a convolution are those that onnxruntime multiplies with the weights."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from npuconv import executor
from npuconv.arithmetic.windows import im2col
from support.builders import Net


@pytest.mark.parametrize(
    ("shape", "kernel", "attributes"),
    [
        ((2, 3, 9), [3], {"strides": [2], "pads": [2, 1]}),
        ((1, 2, 7, 6), [3, 2], {"pads": [1, 0, 2, 1]}),
        ((2, 2, 9, 8), [2, 3], {"strides": [2, 1], "dilations": [3, 2], "pads": [0, 1, 1, 1]}),
        ((1, 2, 5, 4, 6), [2, 1, 3], {"strides": [1, 2, 2]}),
    ],
)
def test_they_give_the_convolution(shape, kernel, attributes):
    """The sum of windows times weights is the output."""
    net = Net(x=shape).conv("x", (4, shape[1], *kernel), bias=False, to="y", **attributes)
    model = net.model()
    rng, rank = np.random.default_rng(0), len(kernel)
    x = rng.normal(size=shape).astype(np.float32)
    (weight,) = (onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer)
    values = {"strides": [1] * rank, "dilations": [1] * rank, "pads": [0] * 2 * rank} | attributes
    windows = im2col(x, kernel, values["strides"], values["dilations"], values["pads"])
    axes = [1, *range(2 + rank, 2 + 2 * rank)]
    found = np.moveaxis(np.tensordot(windows, weight, (axes, list(range(1, 2 + rank)))), -1, 1)
    (wanted,) = executor.Session(model).run({"x": x}).values()
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_a_kernel_that_is_larger_than_the_values():
    """There are no positions."""
    assert im2col(np.zeros((1, 2, 3, 3), np.float32), [4, 1], [1, 1], [1, 1], [0] * 4).size == 0
