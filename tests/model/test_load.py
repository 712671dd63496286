"""Reading of models, and one-line errors for what is no model."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import npuconv
from npuconv.errors import ModelError
from npuconv.model import load
from npuconv.model.graph_import import MAX_OPSET
from support.builders import Net, digits, images


def graph(*nodes, outputs=("y",), tensors=(), opset=17, ir_version=8):
    """A model of these nodes that reads x [1, 3]."""
    made = helper.make_graph(
        list(nodes),
        "hand_made",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", "m"]) for name in outputs],
        list(tensors),
    )
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(made, opset_imports=imports, ir_version=ir_version)


def node(op, inputs, *outputs):
    return helper.make_node(op, inputs, list(outputs), name=f"the_{op}")


def tensor(dims, data, kind=TensorProto.FLOAT):
    return TensorProto(name="w", data_type=kind, dims=dims, raw_data=data)


def refused(source):
    """Return the one-line error of a source."""
    with pytest.raises(ModelError) as caught:
        load.load(source)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", "is empty"),
        (b"import numpy as np\n", "a text file"),
        ('{"name": "Übung"}\n'.encode(), "a text file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a text file"),
        (b"\0" * 64, "truncated, or another format"),
        (b"PK\x03\x04\x14\0\0\0", "truncated, or another format"),
    ],
)
def test_a_file_of_another_kind(tmp_path, content, cause):
    """The line names the file and what it seems to be."""
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    text = refused(path)
    assert text.startswith(str(path))
    assert cause in text


@pytest.mark.parametrize("share", [0.001, 0.3, 0.9, 0.999])
def test_a_truncated_file(tmp_path, share):
    """Wherever a download stopped, the file is refused by name."""
    whole = digits().SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(whole[: max(int(len(whole) * share), 5)])
    assert str(path) in refused(path)


def test_no_such_file_and_a_directory(tmp_path):
    """The errors name a missing file, and a folder."""
    assert refused(tmp_path / "gone.onnx").endswith("gone.onnx: no such file")
    said = refused(tmp_path)
    assert "is a directory, not a model" in said
    assert "npuconv check takes directories, npuconv batch converts many" in said


def test_a_file_that_cannot_be_read(tmp_path):
    """Other failures of the system are passed on in its own words."""
    path = tmp_path / ("n" * 300)
    assert "cannot be read: File name too long" in refused(path)


def test_no_graph_and_no_nodes():
    """A proto without a graph, and a graph without nodes, hold nothing to convert."""
    assert "it has no graph" in refused(onnx.ModelProto(ir_version=8))
    assert refused(graph()) == "hand_made: the graph has no nodes"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (graph(node("Add", ["x", "b"], "a"), node("Relu", ["a"], "b"), node("Neg", ["b"], "y")),
         ["'the_Add' (Add)", "'b'", "a cycle"]),
        (graph(node("Add", ["x", "nowhere"], "y")),
         ["'the_Add' (Add)", "'nowhere'", "no node makes"]),
        (graph(node("Relu", ["x"], "y"), node("Neg", ["x"], "y")),
         ["'the_Neg' (Neg)", "'y'", "already made"]),
        (graph(node("Relu", ["x"], "x"), node("Neg", ["x"], "y")), ["'the_Relu'", "'x'"]),
        (graph(node("Split", ["x"], "y", "y")), ["'y'"]),
        (graph(node("Relu", ["x"], "z")), ["output 'y' is made by no node"]),
        (graph(node("Relu", [], "y")), ["Relu", "input size 0"]),
        (graph(node("NoSuchOperator", ["x"], "y")), ["NoSuchOperator"]),
        (graph(node("Relu", ["x"], "y"), opset=99), ["opset 99", "newer", "upgrade"]),
        (graph(node("Relu", ["x"], "y"), opset=0), ["opset 0 does not exist"]),
        (graph(node("Relu", ["x"], "y"), ir_version=99), ["ir_version 99"]),
    ],
)  # fmt: skip
def test_a_graph_that_contradicts_itself(model, words):
    """The line names the model, the node and the tensor."""
    text = refused(model)
    assert text.startswith("hand_made: ")
    assert all(word in text for word in words)


@pytest.mark.parametrize(
    ("dims", "data", "kind", "words"),
    [
        ([2, 3], b"\0" * 8, TensorProto.FLOAT, ["[2, 3]", "24 bytes", "8 bytes"]),
        ([2, -3], b"\0" * 24, TensorProto.FLOAT, ["[2, -3]"]),
        ([3], b"\0" * 12, 77, ["unknown type 77"]),
    ],
)
def test_a_tensor_that_contradicts_its_bytes(dims, data, kind, words):
    """Shape, size and type of an initializer must agree."""
    text = refused(graph(node("Add", ["x", "w"], "y"), tensors=[tensor(dims, data, kind)]))
    assert all(word in text for word in ["'w'", *words])


def test_a_tensor_with_too_few_numbers():
    """The same holds for numbers that are not stored as bytes."""
    short = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 3], float_data=[1.0])
    assert "(6 values) but holds 1" in refused(graph(node("Add", ["x", "w"], "y"), tensors=[short]))


def test_an_element_type_that_nobody_knows():
    """Models that only graph-surgeon refuses are refused as well."""
    model = digits()
    model.graph.value_info.append(helper.make_tensor_value_info("x", 99, [1]))
    assert "cannot be read as a graph" in refused(model)


def test_types_that_are_smaller_than_a_byte():
    """Two int4 share a byte, and an unused one does no harm."""
    packed = tensor([3], b"ab", TensorProto.INT4)
    model = graph(node("Relu", ["x"], "y"), tensors=[packed], opset=21, ir_version=10)
    assert load.load(model).opset == 21


def test_a_path_and_a_proto_are_the_same_model(tmp_path, monkeypatch):
    """Read from a file or from memory: the same nodes; a report never shows folders."""
    path = tmp_path / "m.onnx"
    onnx.save(digits(), path)
    monkeypatch.chdir(tmp_path)
    from_memory, absolute, relative = (load.load(s) for s in (digits(), path, "./m.onnx"))
    assert [n.op for n in from_memory.nodes()] == [n.op for n in absolute.nodes()]
    assert (from_memory.name, absolute.name, relative.name) == ("test", "m.onnx", "m.onnx")
    assert absolute.sha256 == relative.sha256
    assert len(from_memory.sha256) == 64


def test_a_proto_without_a_name():
    """ONNX wants a graph to have a name; without one the line says 'model'."""
    model = digits()
    model.graph.name = ""
    assert refused(model).startswith("model: ")


@pytest.mark.parametrize("form", ["qoperator", "qdq", "weights", "float"])
def test_a_proto_is_not_changed(form):
    """Loading and every pass leave the caller's model as it was, to the byte."""
    model = digits()
    before = model.SerializeToString(deterministic=True)
    npuconv.convert(model, calibration={"x": images(4, 1, 8, 8)}, format=form)
    assert model.SerializeToString(deterministic=True) == before


def external(tmp_path, location="weights.bin"):
    """A file whose weights lie in another one."""
    model = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).model()
    for item in model.graph.initializer:
        onnx.external_data_helper.set_external_data(item, location)
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    return path


def test_external_data(tmp_path):
    """Weights beside the file are found, wherever the user is."""
    path = external(tmp_path)
    (conv,) = load.load(path).nodes("Conv")
    inside = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).model()
    assert np.array_equal(conv.inputs[1].values, numpy_helper.to_array(inside.graph.initializer[0]))


def test_external_data_that_is_missing(tmp_path):
    """The line names the model and the file that is not there."""
    path = external(tmp_path)
    (tmp_path / "weights.bin").unlink()
    text = refused(path)
    assert text.startswith(f"{path}: external data:")
    assert "it belongs beside the model, as weights.bin; or save the model" in text


def test_external_data_outside_the_folder(tmp_path):
    """A model cannot read other files of the user."""
    path = external(tmp_path)
    model = onnx.load(path, load_external_data=False)
    for item in model.graph.initializer:
        item.external_data[0].value = "../secret"
    path.write_bytes(model.SerializeToString())
    assert "external data" in refused(path)


def with_listed_initializers():
    """A model as IR 3 wanted it: initializers are inputs too."""
    model = Net(x=(1, 3, 8, 8), opset=9, ir_version=3).conv("x", (4, 3, 3, 3)).model()
    for item in model.graph.initializer:
        info = helper.make_tensor_value_info(item.name, item.data_type, item.dims)
        model.graph.input.append(info)
    return model


def test_initializers_that_are_inputs():
    """Initializers are constants, and inputs are what a user feeds."""
    model = load.load(with_listed_initializers())
    assert [t.name for t in model.graph.inputs] == ["x"]
    (conv,) = model.nodes("Conv")
    assert conv.inputs[1].values.shape == (4, 3, 3, 3)


def test_ir_3_without_its_listing():
    """An initializer that is no input is not valid before IR 4, but every runtime loads it."""
    model = Net(x=(1, 3, 8, 8), opset=9, ir_version=3).conv("x", (4, 3, 3, 3)).model()
    assert len(load.load(model).nodes()) == 1


def test_constants_of_a_proto_keep_their_names():
    """Constants of nodes, also in branches, have no names and get none when written."""
    value = helper.make_node(
        "Constant", [], ["one"], value=numpy_helper.from_array(np.float32([1]))
    )
    total, add = node("ReduceSum", ["x"], "sum"), node("Add", ["x", "one"], "y")
    inside = [value, node("Add", ["x", "one"], "z")]
    made = helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", "m"])
    inner = helper.make_graph(inside, "branch", [], [made])
    held = helper.make_node("If", ["sure"], ["y"], then_branch=inner, else_branch=inner)
    sure = helper.make_node("Cast", ["sum"], ["sure"], to=TensorProto.BOOL)
    for model in (graph(value, add), graph(total, sure, held)):
        before = model.SerializeToString(deterministic=True)
        npuconv.check(model)
        assert model.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("version", [1, 2])
def test_ir_without_an_opset(version):
    """Before IR 3 there was no opset: the operators are those of opset 1, the proto stays."""
    model = with_listed_initializers()
    model.ir_version = version
    del model.opset_import[:]
    before = model.SerializeToString(deterministic=True)
    assert load.load(model).opset == 1
    assert model.SerializeToString(deterministic=True) == before


def test_ir_3_needs_an_opset():
    """Models from IR 3 on say their opset."""
    model = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3)).model()
    del model.opset_import[:]
    assert "opset_import" in refused(model)


@pytest.mark.parametrize("opset", [1, 6, 7, 11, 13, 17, 21, MAX_OPSET])
def test_every_opset(opset):
    """Every opset that the onnx package knows can be read."""
    ir_version = 8 if opset <= 17 else 10
    net = Net(x=(1, 3, 8, 8), opset=opset, ir_version=ir_version).conv("x", (4, 3, 3, 3))
    assert load.load(net.model()).opset == opset


def test_only_other_domains():
    """A model of foreign operators alone does not say a standard opset."""
    model = graph(helper.make_node("Thing", ["x"], ["y"], domain="com.example"))
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("com.example", 3))
    assert load.load(model).opset == 1


def test_origins():
    """Every node has one: its name, or its operator with a number."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (3, 3, 1, 1), name="stem")
    model = load.load(net.op("Relu", name="").op("Neg", name="").op("Relu", name="").model())
    assert [model.label(n) for n in model.nodes()] == ["stem", "Relu_0", "Neg_0", "Relu_1"]
    assert [model.origin(n) for n in model.nodes("Relu")] == [("Relu_0",), ("Relu_1",)]


def branching():
    """An If whose branches read a tensor from outside."""

    def branch(op):
        out = helper.make_tensor_value_info(f"{op}_out", TensorProto.FLOAT, [1, 3])
        return helper.make_graph([node(op, ["x"], f"{op}_out")], op, [], [out])

    cond = numpy_helper.from_array(np.asarray(True), "w")
    choice = helper.make_node(
        "If", ["w"], ["y"], name="choice", then_branch=branch("Relu"), else_branch=branch("Neg")
    )
    return graph(choice, tensors=[cond])


def test_subgraphs():
    """Nodes inside are walked with a path, have origins, and are no top-level nodes."""
    model = load.load(branching())
    walked = {n.op: path for n, path in model.walk()}
    assert walked == {"If": "", "Relu": "choice/then_branch/", "Neg": "choice/else_branch/"}
    assert [n.op for n in model.nodes()] == ["If"]
    assert {model.label(n) for n, _ in model.walk()} == {"choice", "the_Relu", "the_Neg"}


def test_a_subgraph_that_reads_nothing():
    """The checks go into subgraphs."""
    model = branching()
    model.graph.node[0].attribute[0].g.node[0].input[0] = "nowhere"
    assert "'nowhere'" in refused(model)
