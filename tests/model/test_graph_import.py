"""Import: functions inlined, sparse tensors dense, and the rest as graph-surgeon imports it."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import npuconv
from npuconv.model import load
from npuconv.model.graph_import import dense, import_graph, inlined
from support.asserts import read, same_numbers
from support.builders import Net, images

FLAT, COORDINATES = [0, 5, 7], [[0, 0, 0, 0], [0, 0, 1, 2], [0, 0, 2, 1]]
OPSET = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]


def called(times: int = 2, opset: int = 17) -> onnx.ModelProto:
    """Calls of a function that is a convolution with padding and a Relu."""
    block = helper.make_function(
        "own",
        "Block",
        ["x", "w"],
        ["y"],
        [
            helper.make_node("Conv", ["x", "w"], ["c"], name="inner", auto_pad="SAME_UPPER"),
            helper.make_node("Relu", ["c"], ["y"]),
        ],
        [helper.make_opsetid("", opset)],
    )
    net = Net(x=(1, 3, 8, 8))
    for k in range(times):
        weight = net.random(4, 4 if k else 3, 3, 3)
        net.op("Block", net.last if k else "x", weight, domain="own")
    model = net.model()
    del model.opset_import[:]
    model.opset_import.extend(OPSET)
    model.functions.append(block)
    return model


def test_nodes_take_the_place_of_calls():
    """Convolutions among them, and the caller's own model stays as it was."""
    model = called()
    before = model.SerializeToString(deterministic=True)
    assert [node.op for node in load.load(model).nodes()] == ["Conv", "Relu"] * 2
    assert model.SerializeToString(deterministic=True) == before


def test_what_is_inside_is_checked_and_converted():
    """All its multiplications run on the device, and the numbers are those of the model."""
    model, samples = called(), images(16, 3, 8, 8)
    report = npuconv.check(model)
    assert report.summary.verdict == "convertible"
    result = npuconv.convert(model, calibration={"x": samples})
    assert sum(node.op_type == "QLinearConv" for node in result.model.graph.node) == 2
    macs = result.report.device.macs_after
    assert macs.device == macs.total == 8 * 8 * 9 * (3 * 4 + 4 * 4)
    pair = [ort.InferenceSession(m.SerializeToString()) for m in (model, result.model)]
    exact, found = (each.run(None, {"x": samples[:1]})[0] for each in pair)
    assert np.square(exact).sum() > 100 * np.square(found - exact).sum()


def test_a_model_without_functions_is_not_copied():
    """A model without functions is not copied."""
    model = Net(x=(1, 3, 8, 8)).conv().model()
    assert inlined(model) is model


@pytest.mark.parametrize("opset", [17, 11])
def test_an_opset_of_its_own(opset):
    """Written out where that is the same language; else it stays what only the host knows."""
    made = inlined(called(1, opset))
    assert len(made.functions) == (opset != 17)
    assert made.graph.output[0].type.tensor_type.elem_type == TensorProto.FLOAT


def referring(given: dict[str, list[int]], defaults: dict[str, list[int]]) -> onnx.ModelProto:
    """A call of a function whose convolution takes its lists from the call."""
    inner = helper.make_node("Conv", ["x", "w"], ["y"], name="inner")
    for name in ("strides", "pads"):
        kind = onnx.AttributeProto.INTS
        inner.attribute.add(name=name, ref_attr_name=name, type=kind)
    block = helper.make_function(
        "own", "Block", ["x", "w"], ["y"], [inner], OPSET[:1],
        [name for name in ("strides", "pads") if name not in defaults],
        [helper.make_attribute(name, value) for name, value in defaults.items()],
    )  # fmt: skip
    net = Net(x=(1, 3, 8, 8))
    model = net.op("Block", "x", net.random(4, 3, 3, 3), domain="own", **given).model()
    model.functions.append(block)
    return model


@pytest.mark.parametrize(
    ("given", "defaults"),
    [
        ({"strides": [2, 1], "pads": [1, 1, 1, 1]}, {}),
        ({"pads": [0, 1, 0, 1]}, {}),
        ({"pads": [1, 1, 1, 1]}, {"strides": [2, 1]}),
        ({"strides": [1, 2], "pads": [1, 1, 1, 1]}, {"strides": [2, 1]}),
    ],
)
def test_attributes_of_the_call(given, defaults):
    """A list that the call gives, leaves out, or leaves to the function's default."""
    model, sample = referring(given, defaults), images(1, 3, 8, 8)
    result = npuconv.convert(model, format="float")
    assert [node.op_type for node in result.model.graph.node] == ["Conv"]
    pair = [ort.InferenceSession(m.SerializeToString()) for m in (model, result.model)]
    exact, found = (each.run(None, {"x": sample})[0] for each in pair)
    np.testing.assert_array_equal(found, exact)


def values(indices: list) -> onnx.SparseTensorProto:
    """Weights of which three are not zero."""
    numbers = numpy_helper.from_array(np.array([1, -2, 3], np.float32), "w")
    return helper.make_sparse_tensor(
        numbers, numpy_helper.from_array(np.array(indices, np.int64), "i"), [4, 3, 3, 3]
    )


def by_node(indices: list) -> onnx.ModelProto:
    """A Constant node with sparse values."""
    net = Net(x=(1, 3, 8, 8))
    net.nodes.append(helper.make_node("Constant", [], ["w"], sparse_value=values(indices)))
    return net.op("Conv", "x", "w").model()


def by_initializer(indices: list) -> onnx.ModelProto:
    """A sparse initializer."""
    proto = by_node(indices)
    del proto.graph.node[0]
    proto.graph.sparse_initializer.append(values(indices))
    return proto


@pytest.mark.parametrize("indices", [FLAT, COORDINATES])
@pytest.mark.parametrize("build", [by_node, by_initializer])
def test_they_are_written_out(build, indices):
    """The weights of a convolution may be sparse: it is converted, with the same numbers."""
    model = build(indices)
    before = model.SerializeToString(deterministic=True)
    same_numbers(model, npuconv.convert(model, format="float").model)
    assert model.SerializeToString(deterministic=True) == before


def test_a_dense_model_is_not_copied():
    """A model without them is not copied."""
    model = Net(x=(1, 3, 8, 8)).conv().model()
    assert dense(model) is model


def test_a_subgraph_reads_tensors_of_the_outer_graph_itself():
    inner = helper.make_graph(
        [helper.make_node("Relu", ["t0"], ["r"])],
        "inner",
        [],
        [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)],
    )
    proto = Net(x=(1, 4)).op("Neg").model()
    made = proto.graph.node[0].output[0]
    inner.node[0].input[0] = made
    proto.graph.node.append(
        helper.make_node("If", ["cond"], ["z"], then_branch=inner, else_branch=inner)
    )
    graph = import_graph(proto)
    branch = graph.nodes[1].attrs["then_branch"]
    assert branch.nodes[0].inputs[0] is graph.nodes[0].outputs[0]


def test_an_output_that_is_stated_twice():
    """The interface of the model counts, not what is said of the same tensor inside."""
    proto = Net(x=(1, 3, 8, 8)).conv().model()
    output = proto.graph.output[0]
    stated = helper.make_tensor_value_info(output.name, TensorProto.FLOAT, [7, 3, 4, 4])
    proto.graph.value_info.append(stated)
    shape = [dim.dim_value for dim in output.type.tensor_type.shape.dim]
    assert list(import_graph(proto).outputs[0].shape) == shape


def body(kind: str) -> onnx.GraphProto:
    """A body of a Loop that calls its state, or its result, as a tensor around it is called."""
    state, result = {"input": ("t", "t2"), "constant": ("w", "t2"), "own": ("s", "looped")}[kind]
    infos = [("i", TensorProto.INT64, []), ("cond", TensorProto.BOOL, [])]
    inputs = [helper.make_tensor_value_info(*info) for info in infos]
    inputs.append(helper.make_tensor_value_info(state, TensorProto.FLOAT, None))
    nodes = [
        helper.make_node("Add", [state, "one"], [result]),
        helper.make_node("Identity", ["cond"], ["going"]),
    ]
    outputs = [helper.make_tensor_value_info("going", TensorProto.BOOL, [])]
    outputs.append(helper.make_tensor_value_info(result, TensorProto.FLOAT, None))
    return helper.make_graph(nodes, "body", inputs, outputs)


@pytest.mark.parametrize("kind", ["input", "constant", "own"])
def test_names_in_a_body_that_shadow_those_around_it(kind):
    """Each stands for a tensor of its own, so that no rewrite around it reaches into the body."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), to="t")
    net.initializers[0].name = net.nodes[0].input[1] = "w"
    net.constant(np.float32(1), "one")
    net.op("Loop", net.constant(np.int64(3)), "", "t", body=body(kind), to="looped").op("Relu")
    source = net.model()
    model = read(source)
    (loop,) = model.nodes("Loop")
    outer = {id(t) for n in model.nodes() for t in (*n.inputs, *n.outputs)}
    inner = [t for n in loop.attrs["body"].nodes for t in (*n.inputs, *n.outputs)]
    assert not [t.name for t in inner if id(t) in outer]
    same_numbers(source, model)


@pytest.mark.parametrize("both", [False, True])
def test_an_initializer_of_a_body_that_shadows(both):
    """onnxruntime reads the tensor around it if another body of the node reads that."""
    then, otherwise = Net(prefix="a").op("Add", "t", "k"), Net(prefix="b").op("Sub", "t", "k")
    then.constant(np.float32(5), "k")
    if both:
        otherwise.constant(np.float32(7), "k")
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), to="t").op("Abs")
    net.constant(np.float32(1), "k")
    source = net.branch(then, otherwise).model()
    same_numbers(source, read(source))
