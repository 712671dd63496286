"""Faults of a proto, and broken invariants after a pass."""

from __future__ import annotations

import onnx
import pytest
from google.protobuf.message import EncodeError
from onnx import TensorProto, helper

from npuconv import limits
from npuconv.errors import InternalError, ModelError
from npuconv.model import edit, load, shapes, validate
from support.asserts import read
from support.builders import Net, digits


@pytest.fixture
def model():
    return read(Net(x=(1, 4)).op("Relu").op("Neg").model())


def broken(model):
    """Return the message of the error after a pass."""
    with pytest.raises(InternalError) as caught:
        validate.check_model(model, after="some-pass")
    assert caught.value.exit_code == 70
    assert "pass 'some-pass'" in str(caught.value)
    return str(caught.value)


def test_a_sound_model(model):
    """A model as read passes."""
    validate.check_model(model, after="nothing")


def test_a_node_without_an_origin(model):
    """Every node stands for one of the user's."""
    relu = model.nodes()[0]
    stranger = type(relu)("Abs", "stranger", {}, [relu.outputs[0]], [edit.variable(model, "v")])
    model.graph.nodes.append(stranger)
    assert "'stranger' (Abs) has no origin" in broken(model)


def test_nodes_out_of_order(model):
    """A tensor is made before it is read."""
    model.graph.nodes.reverse()
    assert "'neg1' reads 't0' before it is made" in broken(model)


def test_a_tensor_made_twice(model):
    """Two tensors of one name would become one in the file."""
    model.nodes()[1].outputs[0].name = "t0"
    assert "'t0' is made twice" in broken(model)


def test_an_output_that_nobody_makes(model):
    """An output needs a producer."""
    edit.disconnect(model.nodes()[1])
    assert "output 't1' is made by no node" in broken(model)


def test_constant_outputs_and_omitted_inputs(model):
    """A constant needs no producer, and an input without a name is omitted."""
    import numpy as np

    edit.set_input(model.nodes()[0], 2, edit.constant(model, "c", np.zeros(1)))
    model.graph.outputs.append(edit.constant(model, "also", np.zeros(1)))
    validate.check_model(model, after="nothing")


def test_subgraphs_are_checked():
    """A branch may read what the graph around it has made, and nothing else."""

    def branch(op):
        out = helper.make_tensor_value_info(op, TensorProto.FLOAT, [1, 4])
        return helper.make_graph([helper.make_node(op, ["t0"], [op])], op, [], [out])

    import numpy as np

    net = Net(x=(1, 4)).op("Relu")
    cond = net.constant(np.asarray(True))
    model = read(net.op("If", cond, then_branch=branch("Neg"), else_branch=branch("Abs")).model())
    validate.check_model(model, after="nothing")
    inner = model.nodes("If")[0].attrs["then_branch"]
    inner.nodes[0].inputs[0] = edit.variable(model, "loose")
    assert "reads 'loose' before it is made" in broken(model)


def test_experimental_operators_print_nothing(capfd):
    """ONNX's checker prints a warning about them; our own checks do without it."""
    model = digits()
    model.graph.node[0].op_type = "ImageScaler"
    validate.check_proto(model, "m")
    assert capfd.readouterr() == ("", "")
    model.graph.node[0].input[0] = "nowhere"
    with pytest.raises(ModelError, match="nowhere"):
        validate.check_proto(model, "m")


def test_a_group_normalization_of_opset_18():
    """The checker calls it deprecated, but onnxruntime runs it; other faults are still found."""
    net = Net(opset=18, x=(1, 4, 3, 3))
    model = net.op("GroupNormalization", "x", *map(net.random, (2, 2)), num_groups=2).model()
    validate.check_proto(model, "m")
    model.graph.node.add(op_type="Relu", input=["t0"], output=["y"]).attribute.add(name="alpha")
    with pytest.raises(ModelError, match="not valid ONNX"):
        validate.check_proto(model, "m")


class TooLarge:
    """A model as protobuf sees one of more than 2 GB: it cannot be serialized."""

    def __init__(self, graph):
        self.graph = graph

    def SerializeToString(self, **_options):  # noqa: N802
        """Fail as protobuf does."""
        raise EncodeError("Failed to serialize proto")


def test_a_model_over_two_gigabytes():
    """ONNX's checker cannot take it whole; our own checks stand."""
    graph = digits().graph
    validate.check_proto(TooLarge(graph), "m")
    graph.node[0].input[0] = "nowhere"
    with pytest.raises(ModelError, match="nowhere"):
        validate.check_proto(TooLarge(graph), "m")


def test_sparse_initializers_are_known():
    """Sparse initializers are tensors of the graph."""
    graph = digits().graph
    name = graph.node[0].input[1]
    values = next(t for t in graph.initializer if t.name == name)
    sparse = onnx.SparseTensorProto(values=values)
    graph.initializer.remove(values)
    graph.sparse_initializer.append(sparse)
    validate.check_proto(TooLarge(graph), "m")


@pytest.mark.parametrize(
    ("text", "shown"), [(" \n ", "the checker gives no reason"), ("\n first \nsecond", "first")]
)
def test_the_reason_of_the_checker(monkeypatch, text, shown):
    """The message has its first line that is not empty; an empty text is still an error."""

    def check_model(_proto):
        raise onnx.checker.ValidationError(text)

    monkeypatch.setattr(onnx.checker, "check_model", check_model)
    with pytest.raises(ModelError, match=f"not valid ONNX: {shown}$"):
        validate.check_proto(digits(), "m")


@pytest.mark.parametrize(
    ("op", "name", "message"),
    [
        (
            "FooBar",
            "foo",
            r"m\.onnx: node 'foo' \(FooBar\): opset 7 has no such.*own needs a domain",
        ),
        ("FooBar", "", r"node 'FooBar' \(FooBar\): opset 7 has no such operator"),
        ("HardSwish", "act", r"node 'act' \(HardSwish\): opset 7 .* since opset 14: export"),
    ],
)
def test_an_operator_that_the_opset_does_not_have(op, name, message):
    """The error names the node, and the opset that has the operator."""
    proto = Net(opset=7, x=(1, 4)).op(op, name=name).model()
    with pytest.raises(ModelError, match=message):
        validate.check_proto(proto, "m.onnx")


def test_results_of_a_run():
    """A tensor that no file holds may be too large as well."""
    model = load.load(Net(x=(1, 3, 600, 600)).conv("x", (4, 3, 1, 1)).model())
    shapes.infer(model)
    validate.check_tensors(model)
    with (
        limits.applied(limits.Limits(tensor_mib=5)),
        pytest.raises(ModelError, match="result 't0'"),
    ):
        validate.check_tensors(model)


@pytest.mark.parametrize(
    ("op", "kernel", "pads"),
    [
        ("MaxPool", [2], [2, 0]),
        ("AveragePool", [2, 1], [0, 0, 2, 0]),
        ("LpPool", [1, 3], [0, 5] * 2),
    ],
)
def test_a_window_of_padding_only(op, kernel, pads):
    """Such a pool has no value: a rewrite of it would be compared with not-a-number."""
    proto = Net(x=(1, 1, *[6] * len(kernel))).op(op, kernel_shape=kernel, pads=pads).model()
    with pytest.raises(ModelError, match=rf"{op}.*are not all smaller than kernel_shape") as caught:
        load.load(proto)
    assert caught.value.exit_code == 2


def test_pads_that_a_pool_does_not_use():
    """Pads beside auto_pad, which say nothing, and pads smaller than the kernel."""
    net = Net(x=(1, 1, 6)).op("MaxPool", kernel_shape=[2], pads=[2, 2], auto_pad="SAME_UPPER")
    validate.check_proto(net.op("MaxPool", kernel_shape=[2], pads=[1, 1]).model(), "m")


def test_inputs_of_different_types():
    """A node whose inputs must be of one type; types of other inputs are their own."""
    net = Net(x=(1, 4, 6, 6)).op("ArgMax", axis=1).conv("", (2, 1, 1, 1), name="c")
    model = load.load(net.model())
    shapes.infer(model)
    with pytest.raises(ModelError, match=r"'c' \(Conv\): input 't0' is int64 and input .* float32"):
        validate.check_tensors(model)
    net = Net(x=(1, 4, 6, 6)).reshape([1, 4, 36]).op("Concat", "t0", "t0", axis=1)
    model = load.load(net.model())
    shapes.infer(model)
    validate.check_tensors(model)
