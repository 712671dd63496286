"""Fast import and export give the same as graph-surgeon's."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_graphsurgeon.exporters.onnx_exporter import OnnxExporter

from npuconv.model import proto, query
from npuconv.model.proto import import_graph
from npuconv.model.surgeon import Constant, Graph, Node, Tensor, Variable
from support.asserts import read, same_numbers
from support.builders import Net
from support.zoo import ZOO


@pytest.mark.parametrize("name", ZOO)
def test_nodes(name):
    """The models are equal byte by byte, subgraphs included."""
    for node, _ in read(ZOO[name]()).walk():
        assert proto.node_proto(node) == OnnxExporter.export_node(node)


@pytest.mark.parametrize(
    "value",
    [
        1, -1, True, 0.5, "text", "größe", b"bytes", [1, 2], [0.5, 1.0], [1, 0.5], ["a", "b"],
        (1, 2), np.int64(3), np.float32(0.5), [np.int64(3)], np.asarray([1, 2]),
        np.float32, Constant("c", np.ones(2, np.float32)),
    ],
    ids=repr,
)  # fmt: skip
def test_attributes(value):
    """Attributes of plain types are written at once, the others as ever."""
    node = Node("Thing", "thing", {"value": value, "other": 1}, domain="com.example")
    assert proto.node_proto(node) == OnnxExporter.export_node(node)


@pytest.mark.parametrize("name", ZOO)
def test_copies(name):
    """A copy of a node stays as it was when the node changes."""
    for node, _ in read(ZOO[name]()).walk():
        was, copy, written = proto.node_proto(node), proto.copy_node(node), onnx.NodeProto()
        for value in node.attrs.values():
            if isinstance(value, list):
                value.clear()
        node.attrs["later"], node.name = 1, "other"
        copy.write(written)
        assert helper.printable_node(written) == helper.printable_node(was)
        assert written.name == was.name


def test_an_empty_list_is_one_of_integers():
    """An empty list has no type; empty lists of ONNX's own operators are of integers."""
    written = proto.node_proto(Node("Thing", attrs={"value": []}))
    assert (written.attribute[0].type, list(written.attribute[0].ints)) == (
        onnx.AttributeProto.INTS,
        [],
    )
    assert proto.copy_node(Node("Thing", attrs={"value": []})).op == "Thing"


@pytest.mark.parametrize("domain", [None, "", "com.example"])
def test_omitted_inputs_and_names(domain):
    """An empty name is not the same as none, as far as protos are concerned."""
    inputs, outputs = [Variable("x"), Variable.empty(), Variable("y")], [Variable("z")]
    node = Node("Clip", "", {}, inputs, outputs, domain)
    written = proto.node_proto(node)
    assert written == OnnxExporter.export_node(node)
    assert list(written.input) == ["x", "", "y"]
    assert not written.HasField("name")


@pytest.mark.parametrize(
    "array",
    [
        np.ones((2, 3), np.float32), np.asarray(4, np.int64), np.asarray([True, False]),
        np.zeros((0, 2), np.int32), np.ones(3, np.float16), np.asarray(["a", "b"], object),
        np.ones(2, ml_dtypes.bfloat16), np.ones((2, 2), np.float32).T,
    ],
    ids=lambda a: f"{a.dtype}{list(a.shape)}",
)  # fmt: skip
def test_constants(array):
    """Type, shape and values."""
    constant = Constant("c", array)
    written = TensorProto()
    try:
        expected = OnnxExporter.export_tensor_proto(constant)
    except Exception as error:
        with pytest.raises(type(error)):
            proto.Types().write_constant(constant, written)
        return
    proto.Types().write_constant(constant, written)
    assert written == expected


@pytest.mark.parametrize("dtype", [ml_dtypes.int4, ml_dtypes.uint4])
def test_constants_of_less_than_a_byte(dtype):
    """Two elements lie in a byte; the exporter takes two bytes for them."""
    array, written = np.arange(5).astype(dtype), TensorProto()
    proto.Types().write_constant(Constant("c", array), written)
    assert written.name == "c"
    assert np.array_equal(numpy_helper.to_array(written), array)


@pytest.mark.parametrize("dims", [None, [], [1, "n", None], [2, 3]])
@pytest.mark.parametrize("dtype", [None, np.float32, np.dtype("int64"), TensorProto.BFLOAT16])
def test_types(dtype, dims):
    """Written and read back; a second tensor of the same type finds the first one's proto."""
    types, tensor = proto.Types(), Variable("t", dtype, dims)
    for _ in range(2):
        info = onnx.ValueInfoProto()
        types.write(tensor, info)
        if dtype is None:
            assert info == helper.make_empty_tensor_value_info("t")
            continue
        assert info == OnnxExporter.export_value_info_proto(tensor, do_type_check=True)
        found = types.read(info)
        assert found.dims == query.shape(tensor)
        assert found.dtype == TensorProto.BFLOAT16 or np.dtype(found.dtype) == np.dtype(dtype)


def test_an_extent_of_0_is_not_known():
    """Exporters write 0 for an unknown extent."""
    found = proto.Types().read(helper.make_tensor_value_info("t", TensorProto.FLOAT, [0, 2]))
    assert found.dims == (None, 2)


def test_what_is_no_tensor_has_no_type():
    """A sequence has no type and shape."""
    info = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [1])
    assert proto.Types().read(info) == proto.TensorType()


def numbered(graph: Graph) -> dict[int, int]:
    """Tensors by the order in which they are met: equal numbers are the same object."""
    found: dict[int, int] = {}
    tensors = [*graph.inputs, *graph.outputs]
    tensors += [t for n in graph.nodes for t in (*n.inputs, *n.outputs)]
    for tensor in tensors:
        found.setdefault(id(tensor), len(found))
    return found


def tensor(given: Tensor, numbers: dict[int, int], nodes: dict[int, int]) -> tuple[Any, ...]:
    """Return all fields of a tensor, with positions for nodes."""
    said = {k: v for k, v in vars(given).items() if k not in ("inputs", "outputs", "_values")}
    values = given.values.tobytes() if isinstance(given, gs.Constant) else None
    lists = [[nodes.get(id(n), -1) for n in part] for part in (given.inputs, given.outputs)]
    fields = given.inputs.field_name, given.outputs.field_name
    owners = given.inputs.parent_obj is given and given.outputs.parent_obj is given
    return (type(given), numbers.get(id(given)), said, values, lists, fields, owners)


def described(node: Node, numbers: dict[int, int]) -> tuple[Any, ...]:
    """Return all fields of a node, with numbers for tensors."""
    lists = [[numbers[id(t)] for t in part] for part in (node.inputs, node.outputs)]
    fields = node.inputs.field_name, node.outputs.field_name
    owners = node.inputs.parent_obj is node and node.outputs.parent_obj is node
    attrs = {key: plain(value) for key, value in node.attrs.items()}
    return (node.op, node.name, node.domain, attrs, lists, fields, owners, sorted(vars(node)))


def plain(value: Any) -> Any:
    """Return an attribute in a form that can be compared."""
    if isinstance(value, Graph):
        return said(value)
    return value.values.tolist() if isinstance(value, gs.Constant) else value


def said(graph: Graph) -> tuple[Any, ...]:
    """Return all fields of a graph."""
    numbers, nodes = numbered(graph), {id(n): i for i, n in enumerate(graph.nodes)}
    found = {id(t): t for n in graph.nodes for t in (*n.inputs, *n.outputs)}
    found |= {id(t): t for t in (*graph.inputs, *graph.outputs)}
    tensors = [tensor(t, numbers, nodes) for t in found.values()]
    head = [graph.name, graph.doc_string, graph.opset, graph.ir_version, graph.producer_name]
    ports = [[numbers[id(t)] for t in part] for part in (graph.inputs, graph.outputs)]
    return (head, ports, [described(node, numbers) for node in graph.nodes], tensors)


@pytest.mark.parametrize("name", ZOO)
def test_the_zoo(name):
    proto = ZOO[name]()
    assert said(import_graph(proto)) == said(gs.import_onnx(proto))


@pytest.mark.parametrize("name", ZOO)
def test_the_zoo_with_shapes(name):
    """Tensors whose types are stated, outputs among them."""
    proto = onnx.shape_inference.infer_shapes(ZOO[name]())
    proto.graph.value_info.extend(list(proto.graph.output))
    assert said(import_graph(proto)) == said(gs.import_onnx(proto))


def test_what_is_rare():
    """Stated twice, left out, listed among the inputs, made by nothing, texts, tensors."""
    net = Net(x=(1, 4, 8, 8)).conv("x", (4, 4, 3, 3), name="first").op("Clip", "t0", "", "nowhere")
    proto = net.model()
    graph = proto.graph
    half = helper.make_tensor_value_info(graph.node[0].output[0], TensorProto.FLOAT, None)
    full = helper.make_tensor_value_info(graph.node[0].output[0], TensorProto.FLOAT, [1, 4, 6, 6])
    graph.value_info.extend([half, full])
    weight = graph.initializer[0]
    graph.input.append(helper.make_tensor_value_info(weight.name, TensorProto.FLOAT, weight.dims))
    graph.initializer.append(numpy_helper.from_array(np.zeros(3, np.float32), weight.name))
    values = numpy_helper.from_array(np.arange(3, dtype=np.float32), "inside")
    graph.node.append(helper.make_node("Constant", [], ["c"], value=values))
    graph.node.append(helper.make_node("Thing", ["c", ""], ["d", ""], "n", domain="com.a", s="ä"))
    graph.node[-1].attribute.extend(
        [helper.make_attribute("fs", [0.5]), helper.make_attribute("texts", ["a", "b"])]
    )
    assert said(import_graph(proto)) == said(gs.import_onnx(proto))


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
    assert said(graph) == said(gs.import_onnx(proto))


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
