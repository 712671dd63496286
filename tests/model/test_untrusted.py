"""Limits on an untrusted model, and the flags that raise them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuconv import limits
from npuconv.errors import ModelError
from npuconv.model import untrusted
from support.builders import Net


def check(proto: onnx.ModelProto) -> None:
    untrusted.check(proto, "m.onnx")


def refused(proto: onnx.ModelProto, **bounds: int) -> str:
    with limits.applied(limits.Limits(**bounds)), pytest.raises(ModelError) as caught:
        check(proto)
    assert caught.value.message.startswith("m.onnx: ")
    return str(caught.value)


def net() -> Net:
    return Net(x=(1, 3, 8, 8)).conv("x").op("Relu")


def test_a_usual_model():
    """A usual model passes."""
    check(net().model())


def test_nodes():
    """Nodes of subgraphs count; the allowed number is allowed."""
    proto = Net(x=(1, 3, 8, 8)).conv("x").branch(_branch("a"), _branch("b")).model()
    count = len(proto.graph.node) + 2
    with limits.applied(limits.Limits(nodes=count)):
        check(proto)
    text = refused(proto, nodes=count - 1)
    assert (
        text == f"m.onnx: has {count} nodes, over {count - 1} (if you trust it, raise --max-nodes)"
    )


def _branch(prefix: str) -> Net:
    return Net(prefix=prefix).op("Relu", "t0")


def test_depth():
    """The limit covers subgraphs in subgraphs."""
    proto = Net(x=(1, 3, 8, 8)).conv("x").branch(_branch("a"), _branch("b")).model()
    with limits.applied(limits.Limits(depth=1)):
        check(proto)
    assert "subgraphs 1 deep, over 0" in refused(proto, depth=0)


def _function(name: str, *calls: str) -> onnx.FunctionProto:
    nodes = [helper.make_node(op, [f"a{i}"], [f"a{i + 1}"], domain="f" if op in "FGH" else "")
             for i, op in enumerate(calls)]  # fmt: skip
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    return helper.make_function("f", name, ["a0"], [f"a{len(calls)}"], nodes, opset)


def test_functions_count_as_often_as_they_are_called():
    """Written out: F is two G, which are three nodes each; with the calls ten."""
    proto = Net(x=(1, 3, 8, 8)).op("F", "x", domain="f").model()
    proto.functions.extend([_function("F", "G", "G"), _function("G", "Relu", "Abs", "Relu")])
    assert "has 9 nodes" in refused(proto, nodes=8)
    proto.functions[1].node[0].op_type, proto.functions[1].node[0].domain = "F", "f"
    assert "calls itself" in refused(proto)


@pytest.mark.parametrize("field", ["name", "op_type"])
def test_names_that_are_no_text(field):
    """Protobuf accepts any bytes as names."""
    proto = net().model()
    setattr(proto.graph.node[1], field, "QQQQ")
    bad = onnx.load_model_from_string(
        proto.SerializeToString().replace(b"QQQQ", b"\xff\xfe\xff\xfe")
    )
    assert "not UTF-8" in refused(bad)


def test_attributes():
    """Windows of more than 2 to the 31, and references to a function's attributes."""
    assert "9223372036854775807" in refused(
        net().op("MaxPool", kernel_shape=[2**63 - 1, 2]).model()
    )
    proto = net().model()
    proto.graph.node[0].attribute.add(name="group", ref_attr_name="g", type=2)
    assert "refers to" in refused(proto)


def test_a_tensor():
    """A tensor over the limit is refused for its size alone."""
    assert "raise --max-tensor-mib" in refused(_with(np.zeros(2**18 + 1, np.float32)), tensor_mib=1)
    with limits.applied(limits.Limits(tensor_mib=1)):
        check(_with(np.zeros(2**18, np.float32)))


def _with(values: np.ndarray) -> onnx.ModelProto:
    proto = net().model()
    proto.graph.initializer.append(numpy_helper.from_array(values, "more"))
    return proto


@pytest.mark.parametrize(
    "kind", [TensorProto.INT4, TensorProto.BFLOAT16, TensorProto.STRING, TensorProto.COMPLEX64]
)
def test_tensors_of_all_kinds(kind):
    """Tensors of ONNX's own helper pass, as values and as bytes."""
    values = [b"a", b"b", b"c"] if kind == TensorProto.STRING else [1, 2, 3]
    tensor = helper.make_tensor("more", kind, [3], values)
    untrusted.check_tensor(tensor, "m.onnx")
    tensor.dims[0] = 9
    with pytest.raises(ModelError, match="but holds"):
        untrusted.check_tensor(tensor, "m.onnx")


@pytest.mark.parametrize(
    ("dims", "places", "text"),
    [([4], [0, 4], "lies outside"), ([2, 2], [[0, 0], [0, 2]], "lies outside"),
     ([4], [[0, 1, 2]], "its places have shape"), ([4], [1], "1 places for"),
     ([4], [0.0, 1.0], "no integers")],
)  # fmt: skip
def test_sparse_tensors(dims, places, text):
    """Indices must lie inside the shape."""
    values = numpy_helper.from_array(np.ones(2, np.float32), "s")
    sparse = helper.make_sparse_tensor(values, numpy_helper.from_array(np.array(places)), dims)
    with pytest.raises(ModelError, match=text):
        untrusted.check_sparse(sparse, "m.onnx")


def test_lists_joined_with_themselves():
    """Fifteen self-concatenations are refused; a list of many parts is not."""
    long = Net(x=(4,))
    for _ in range(15):
        long.op("Concat", long.last, long.last, axis=0)
    with pytest.raises(ModelError, match="joins a list"):
        untrusted.check_concat_growth(long.model(), "m.onnx")
    wide = Net(x=(4,))
    for _ in range(200):
        wide.op("Relu", "x").op("Concat", wide.last, "x", axis=0)
    untrusted.check_concat_growth(wide.model(), "m.onnx")
