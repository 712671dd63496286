"""Tests of write-resize-axes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import npuconv
from npuconv import executor
from support.asserts import read, run_pass, same_numbers
from support.builders import Net, images

NAME = "write-resize-axes"
TWICE, LARGER = np.float32([2, 2]), np.int64([12, 20])


def net(*shape: int | str) -> Net:
    return Net(opset=18, x=shape or (1, 3, 6, 8)).conv(pads=[1] * 4)


def resized(built: Net, array: np.ndarray, **attrs: object) -> onnx.ModelProto:
    """Build a Resize by scales or sizes."""
    given = [built.last, "", "", built.constant(array)]
    if array.dtype == np.float32:
        given = given[:2] + given[3:]
    return built.op("Resize", *given, **{"mode": "nearest", **attrs}).model()


FIRES = [
    lambda: resized(net(), TWICE, axes=[2, 3]),
    lambda: resized(net(), np.float32([3, 2]), axes=[3, 2]),
    lambda: resized(net(), LARGER, axes=[2, -1]),
    lambda: resized(net(), np.float32([2]), axes=[-1], mode="linear"),
    lambda: resized(net("N", 3, "H", "W"), TWICE, axes=[2, 3]),
]
SILENT = [
    lambda: resized(net(), np.float32([1, 1, 2, 2])),
    lambda: resized(net("N", 3, 6, 8), LARGER, axes=[2, 3]),
    lambda: resized(net(), LARGER, axes=[2, 3], keep_aspect_ratio_policy="not_larger"),
]


@pytest.mark.parametrize("build", FIRES)
def test_the_same_numbers(build):
    """All axes are named, in their order."""
    proto = build()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    same_numbers(proto, model)
    (node,) = model.nodes("Resize")
    assert "axes" not in node.attrs
    assert len(node.inputs[-1].values) == 4


@pytest.mark.parametrize("build", [*FIRES[:4], *SILENT])
def test_between_convolutions(build):
    """The converted model runs: in int8 if all axes are named, else in float."""
    proto = build()
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    result = npuconv.convert(proto, calibration={"x": images(8, 3, 6, 8)})
    (made,) = executor.Session(result.model, threads=1).run({"x": images(1, 3, 6, 8)}).values()
    (exact,) = executor.Session(proto, threads=1).run({"x": images(1, 3, 6, 8)}).values()
    assert made.shape == exact.shape
    assert np.square(made - exact).sum() < 0.01 * np.square(exact).sum()
