"""Random graphs of convolutions under random limits: converted, equal, and within the limits.

What the graphs must compute is told by ``graph_text``, and whether a limit is kept is read
off the emitted model by this test: neither knows npuconv. With the environment variable
``FITTING`` there are so many cases for each opset, as in ``make sweep``.
"""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import npuconv
from npuconv.evaluate.simulator import as_float
from support.conv_graphs import OPSETS, Case
from support.dice import Dice
from support.graph_text import attributes, evaluate
from support.random_limits import Limits, random_limits

pytestmark = pytest.mark.e2e

CASES = int(os.environ.get("FITTING", "8"))  # for each of eight opsets
LEAST = 0.98  # of the cases are converted


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    """The model loaded as it is, without a word about it."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def facts_of(model: onnx.ModelProto) -> list[tuple[str, dict[str, Any]]]:
    """The facts of every convolution, read off the file; extents are those it runs with."""
    shapes = {t.name: list(t.dims) for t in model.graph.initializer}
    # Not strict: in ceil mode it counts windows of a pool that begin behind the padded image,
    # which the operator text leaves out. What the file itself says of shapes stays.
    inferred = onnx.shape_inference.infer_shapes(model)
    values = (*inferred.graph.value_info, *inferred.graph.input, *inferred.graph.output)
    shapes |= {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}
    return [
        (node.name, _facts(node, shapes))
        for node in model.graph.node
        if node.op_type in ("Conv", "ConvTranspose", "QLinearConv", "ConvInteger")
    ]


def _facts(node: onnx.NodeProto, shapes: dict[str, list[int]]) -> dict[str, Any]:
    place = 3 if node.op_type == "QLinearConv" else 1
    source, weight, attrs = shapes[node.input[0]], shapes[node.input[place]], attributes(node)
    assert node.op_type != "ConvTranspose", node.name
    assert len(source) == len(weight) == 4, node.name
    assert attrs.get("auto_pad", "NOTSET") == "NOTSET", node.name
    kernel, group = weight[2:], attrs.get("group", 1)
    strides, dilations = attrs.get("strides", [1, 1]), attrs.get("dilations", [1, 1])
    pads = attrs.get("pads", [0] * 4)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    assert source[1] == weight[1] * group, node.name
    return {
        "in_n": source[0], "in_c": source[1], "in_h": source[2], "in_w": source[3],
        "out_c": weight[0], "kernel_h": kernel[0], "kernel_w": kernel[1], "group": group,
        "stride_h": strides[0], "stride_w": strides[1], "dilation_h": dilations[0],
        "dilation_w": dilations[1], "dilated_kernel_h": reach[0], "dilated_kernel_w": reach[1],
        "pad_top": pads[0], "pad_left": pads[1], "pad_bottom": pads[2], "pad_right": pads[3],
        "kernel_volume": weight[1] * kernel[0] * kernel[1], "bias": len(node.input) > 2,
    }  # fmt: skip


def pools_of(model: onnx.ModelProto) -> list[tuple[str, dict[str, Any]]]:
    """The facts of every max pool of images, read off the file."""
    inferred = onnx.shape_inference.infer_shapes(model)
    values = (*inferred.graph.value_info, *inferred.graph.input)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in values}
    found = []
    for node in model.graph.node:
        if node.op_type == "MaxPool" and len(dims := shapes[node.input[0]]) == 4:
            attrs = attributes(node)
            named = zip(("in_n", "in_c", "in_h", "in_w"), dims, strict=True)
            strides, kernel = attrs.get("strides", [1, 1]), attrs["kernel_shape"]
            facts = dict(zip(("stride_h", "stride_w", "kernel_h", "kernel_w"),
                             [*strides, *kernel], strict=True))  # fmt: skip
            found.append((node.name, {**facts, **dict(named)}))
    return found


def converted(case: Case, limits: Limits, path: Path) -> onnx.ModelProto | None:
    """The float model for a device of these limits; None where it is refused."""
    path.write_text(json.dumps(limits.file()))
    shape = {"x": case.feeds["x"].shape}
    try:
        result = npuconv.convert(
            case.model, target=str(path), format="float", input_shape=shape, verify=False
        )
    except npuconv.UnsupportedModelError:
        return None
    again = npuconv.check(result.model, target=str(path), verify=False)
    assert again.ok, again.summary.headline
    return result.model


def law(case: Case, limits: Limits, model: onnx.ModelProto) -> None:
    """Within every limit, and the numbers of the operator texts."""
    onnx.checker.check_model(model)
    for name, facts in facts_of(model):
        assert limits.broken_by(facts) == [], name
    for name, facts in pools_of(model):
        assert limits.broken_by_pool(facts) == [], name
    wanted = evaluate(case.model, case.feeds)
    assert [o.name for o in model.graph.output] == list(wanted)
    for (name, array), value in zip(
        wanted.items(), session(model).run(None, case.feeds), strict=True
    ):
        assert value.shape == array.shape, name
        gap = np.abs(value - array).max(initial=0.0)
        assert gap <= 1e-4 * np.abs(array).max(initial=0.0) + 1e-6, name


@pytest.mark.parametrize("opset", OPSETS)
def test_random_limits_are_kept(opset: int, tmp_path: Path):
    """Nearly all graphs are converted, and all that are keep every limit."""
    seen: Counter[str] = Counter()
    for number in range(CASES):
        case, limits = Case(opset, number), random_limits(Dice(opset, number, "limits"))
        try:
            model = converted(case, limits, tmp_path / "drawn.yaml")
            if model is not None:
                law(case, limits, model)
        except Exception as error:
            error.add_note(f"{case.text}\n{limits}")
            raise
        seen["converted" if model is not None else f"refused {number}"] += 1
    assert seen["converted"] >= int(LEAST * CASES), seen


def in_int8(case: Case, limits: Limits, path: Path) -> onnx.ModelProto | None:
    """The int8 model for a device that adds parts of a layer in int32; None where it is refused."""
    described = limits.file()
    described["activations"] = {**described["activations"], "accumulate": "int32"}
    path.write_text(json.dumps(described))
    try:
        return npuconv.convert(
            case.model, str(path), calibration=[case.feeds], verify=False,
            input_shape={"x": case.feeds["x"].shape},
        ).model  # fmt: skip
    except npuconv.UnsupportedModelError:
        return None


def law_in_int8(case: Case, limits: Limits, model: onnx.ModelProto) -> None:
    """Within every limit, and the numbers of onnxruntime in the simulator."""
    for name, facts in facts_of(model):
        assert limits.broken_by(facts) == [], name
    values = session(model).run(None, case.feeds)
    for mine, theirs in zip(session(as_float(model)).run(None, case.feeds), values, strict=True):
        assert np.array_equal(mine, theirs)


def test_sums_in_the_accumulator_keep_limits_and_integers(tmp_path: Path):
    """Parts in the file keep every limit, and the simulator has the numbers of onnxruntime."""
    seen: Counter[str] = Counter()
    for opset, number in itertools.product(sorted(OPSETS)[-2:], range(CASES)):
        case, limits = Case(opset, number), random_limits(Dice(opset, number, "limits"))
        # Every device adds a bias somewhere: it holds the zero points.
        limits.limits.pop("bias", None)
        try:
            model = in_int8(case, limits, tmp_path / "drawn.yaml")
            if model is not None:
                law_in_int8(case, limits, model)
        except Exception as error:
            error.add_note(f"{case.text}\n{limits}")
            raise
        ops = {node.op_type for node in model.graph.node} if model is not None else set()
        seen["in parts" if "ConvInteger" in ops else "others"] += 1
    assert seen["in parts"] > 0, seen
