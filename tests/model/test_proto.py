"""Fast export gives the same as graph-surgeon's."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_graphsurgeon.exporters.onnx_exporter import OnnxExporter

from npuconv.model import proto, query
from npuconv.model.surgeon import Constant, Node, Variable
from support.asserts import read
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
