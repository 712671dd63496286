"""Tests of write-resize-axes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import npuconv
from npuconv import executor
from support.asserts import context, read, run_pass, same_numbers
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


def bounded(policy: str, mode: str) -> dict[str, str]:
    return {"keep_aspect_ratio_policy": policy, "mode": mode}


FIRES = [
    lambda: resized(net(), TWICE, axes=[2, 3]),
    lambda: resized(net(), np.float32([3, 2]), axes=[3, 2]),
    lambda: resized(net(), LARGER, axes=[2, -1]),
    lambda: resized(net(), np.float32([2]), axes=[-1], mode="linear"),
    lambda: resized(net("N", 3, "H", "W"), TWICE, axes=[2, 3]),
    lambda: resized(net(), np.int64([5]), axes=[2]),
    lambda: resized(net("N", 3, 6, 8), LARGER, axes=[2, 3]),
    lambda: resized(net("N", 3, "H", 8), np.int64([5]), axes=[-1], mode="linear"),
    lambda: resized(net(), LARGER, axes=[2, 3], keep_aspect_ratio_policy="not_larger"),
    lambda: resized(net(), np.int64([9, 4]), axes=[3, 2], **bounded("not_larger", "linear")),
    lambda: resized(net(), np.int64([9, 4]), axes=[2, 3], **bounded("not_smaller", "cubic")),
    lambda: resized(net(), np.int64([1, 4, 6, 8]), keep_aspect_ratio_policy="not_larger"),
    lambda: resized(net(), LARGER, axes=[-2, -1], keep_aspect_ratio_policy="not_larger"),
]
SILENT = [
    lambda: resized(net(), np.float32([1, 1, 2, 2])),
    lambda: resized(net(), np.int64([5, 5]), axes=[2, 3], keep_aspect_ratio_policy="not_larger"),
    lambda: resized(net(1, 3, "H", "W"), LARGER, axes=[2, 3], **bounded("not_larger", "nearest")),
]


@pytest.mark.parametrize("build", FIRES)
def test_the_same_numbers(build):
    """All axes are named, in their order."""
    proto = build()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    same_numbers(proto, model)
    (node,) = model.nodes("Resize")
    assert not {"axes", "keep_aspect_ratio_policy"} & set(node.attrs)
    assert node.inputs[-1].shape in ((4,), [4])


@pytest.mark.parametrize("size", [5, 9])
def test_extents_that_are_measured_are_not_made_smaller(size):
    """An axis that is not resized keeps its extent, which is written as its size."""
    ctx = context()
    run_pass(NAME, read(resized(net(1, 3, 30, 40), np.int64([size]), axes=[2])), ctx)
    (record,) = ctx.rewrites
    assert (record.reference, record.max_abs_difference) == ("onnxruntime", 0)


@pytest.mark.parametrize("build", [FIRES[0], FIRES[5], FIRES[6], FIRES[8], FIRES[11]])
def test_onnxruntime_loads_it_at_its_default_settings(build):
    """Its optimizer moves channels to the end, which it does not do right with axes."""
    proto = build()
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    result = npuconv.convert(proto, calibration={"x": images(8, 3, 6, 8)})
    assert not executor.refusal(result.model)
    assert not any("default settings" in text for text in result.report.summary.warnings)


def test_a_file_for_less_optimization_is_reported():
    """onnxruntime refuses what its optimizer makes of sizes that are bounds: a warning says so."""
    built = net()
    resized(built, np.int64([5, 5]), axes=[2, 3], keep_aspect_ratio_policy="not_larger")
    built.outputs.clear()
    proto = built.conv(weight=(4, 4, 3, 3)).model()
    result = npuconv.convert(proto, calibration={"x": images(8, 3, 6, 8)})
    (text,) = [text for text in result.report.summary.warnings if "default settings" in text]
    assert "set graph_optimization_level of its SessionOptions to ORT_" in text


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
