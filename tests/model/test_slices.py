"""Slices of what a window leaves nothing of, where ONNX would end the process."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import npuconv
from npuconv.errors import ModelError
from npuconv.findings import Severity
from npuconv.model import load, query, shapes
from support.builders import Net


@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize("before", [False, True])
def test_a_slice_of_what_a_window_leaves_nothing_of(step: int, before: bool):
    """ONNX would end the process; the window is found, and what reads it stays open."""
    net = Net(x=(1, 2, 5, 5))
    ends = [net.constant(np.asarray([value], np.int64)) for value in (0, 9999, 2, step)]
    if before:  # what a window makes is sliced there, too, and is none of these
        net.conv("x", (2, 2, 2, 2), kernel_shape=[2, 2]).op("Slice", net.last, *ends[:3])
    net.conv("", (2, 2, 3, 3), dilations=[4, 4], kernel_shape=[3, 3], to="w")
    proto = net.op("Identity", "w", to="y").output().model()
    proto.graph.node[-1].op_type = "Slice"  # now that its shape has been inferred
    proto.graph.node[-1].input.extend(ends)
    del proto.graph.output[0].type.tensor_type.shape.dim[:]
    model = load.load(proto)
    assert shapes.infer(model) == ""
    assert query.shape(model.graph.tensors()["w"]) == (1, 2, None, None)


def test_a_slice_of_a_crop_that_leaves_nothing():
    """A Pad may crop more than there is; a rule reports it."""
    net = Net(x=(1, 2, 5, 5))
    crop = net.constant(np.asarray([0, 0, -9, 0, 0, 0, 0, 0], np.int64))
    ends = [net.constant(np.asarray([value], np.int64)) for value in (0, 9, 2)]
    proto = net.op("Pad", "x", crop, to="w").op("Identity", "w", to="y").output().model()
    proto.graph.node[-1].op_type = "Slice"
    proto.graph.node[-1].input.extend(ends)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    assert {finding.code for finding in npuconv.check(proto).findings} == {"SHP015"}


def body(kernel: int, *given: onnx.ValueInfoProto, inner: bool = False) -> onnx.GraphProto:
    """Build a body that slides a window over ``x`` and slices the result."""
    prefix = f"b{kernel}{'i' if inner else ''}"
    nodes = [
        helper.make_node("Constant", [], [f"{prefix}{name}"], value=numpy_helper.from_array(value))
        for name, value in (
            ("w", np.ones((1, 1, kernel, kernel), np.float32)),
            *((key, np.asarray([n], np.int64)) for key, n in (("s", 0), ("e", 9), ("a", 2))),
        )
    ]
    nodes.append(helper.make_node("Conv", ["x", f"{prefix}w"], [f"{prefix}c"], name=f"{prefix}n"))
    sliced = [f"{prefix}{key}" for key in "csea"]
    nodes.append(helper.make_node("Slice", sliced, [f"{prefix}o"]))
    results = [helper.make_tensor_value_info(f"{prefix}o", TensorProto.FLOAT, [None] * 4)]
    if given:  # of a Loop: the condition goes on
        nodes.append(helper.make_node("Identity", [given[1].name], [f"{prefix}g"]))
        results.insert(0, helper.make_tensor_value_info(f"{prefix}g", TensorProto.BOOL, []))
    if inner:
        branches = {"then_branch": body(kernel), "else_branch": body(1)}
        nodes = [helper.make_node("If", ["b"], [f"{prefix}o"], **branches)]
    return helper.make_graph(nodes, prefix, given, results)


def model(op: str, kernel: int) -> onnx.ModelProto:
    """Build a model with bodies, one of which has a kernel of this size over 3 x 3 cells."""
    net = Net(x=(1, 1, 3, 3)).conv("x", (1, 1, 1, 1), to="y")
    net.inputs.append(helper.make_tensor_value_info("b", TensorProto.BOOL, []))
    trips = net.constant(np.asarray(2, np.int64))
    proto = net.output("y").model()  # whose shapes are inferred here
    if op == "Loop":
        counter = helper.make_tensor_value_info("i", TensorProto.INT64, [])
        goes_on = helper.make_tensor_value_info("g", TensorProto.BOOL, [])
        made = helper.make_node("Loop", [trips, "b"], ["z"], body=body(kernel, counter, goes_on))
    else:
        branches = {"then_branch": body(1), "else_branch": body(kernel, inner=op == "If in If")}
        made = helper.make_node("If", ["b"], ["z"], **branches)
    proto.graph.node.append(made)
    rank = 5 if op == "Loop" else 4
    result = helper.make_tensor_value_info("z", TensorProto.FLOAT, [None] * rank)
    proto.graph.output.append(result)
    return proto


@pytest.mark.parametrize("op", ["If", "If in If", "Loop"])
def test_a_slice_in_a_body(op: str):
    """onnxruntime would end the process as well, so that the model is refused before it."""
    for command in (npuconv.check, npuconv.convert):
        with pytest.raises(ModelError, match="Conv 'b5n', which makes 'b5c' in a body of an If"):
            command(model(op, 5))
    found = npuconv.check(model(op, 3)).findings
    assert {one.code for one in found if one.severity == Severity.ERROR} == {"MDL004"}


def test_what_the_graph_around_makes():
    """A window of the graph that leaves nothing is a finding, also where only a body slices it."""
    proto = model("If", 1)
    net = Net(x=(1, 1, 3, 3)).conv("x", (1, 1, 5, 5), kernel_shape=[5, 5], to="q")
    proto.graph.node.insert(0, net.nodes[0])
    proto.graph.node[0].input[1:] = ["big"]
    proto.graph.initializer.append(
        numpy_helper.from_array(np.ones((1, 1, 5, 5), np.float32), "big")
    )
    for branch in proto.graph.node[-1].attribute:
        for node in branch.g.node:
            node.input[:] = ["q" if name == "x" else name for name in node.input]
    report = npuconv.check(proto)
    assert report.summary.verdict == "refused"
    assert "SHP020" in {finding.code for finding in report.findings}
