"""Costs of nodes, and peak bytes of a model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from npuconv.partition.costs import (
    Cost,
    Form,
    choose,
    cost,
    macs,
    parameters,
    peak,
    weight_bytes,
)
from support.asserts import context, read
from support.builders import Net
from support.target_files import chip

X = (1, 4, 8, 8)


def recurrent(op: str, gates: int, x=(7, 2, 5), **attrs):
    """A layer of 5 inputs and 3 units."""
    net = Net(x=x)
    net.op(
        op, "x", net.random(1, gates * 3, 5), net.random(1, gates * 3, 3), hidden_size=3, **attrs
    )
    return read(net.model()).nodes(op)[0]


@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_recurrent_layers(op, gates):
    """Every step of every sample multiplies with all weights."""
    assert macs(recurrent(op, gates)) == 7 * 2 * gates * 3 * (5 + 3)


def test_recurrent_layers_with_open_extents():
    """A symbolic batch counts as one, a symbolic length is not known."""
    assert macs(recurrent("GRU", 3, x=(7, "N", 5))) == 7 * 9 * 8
    assert macs(recurrent("GRU", 3, x=("T", 2, 5))) is None
    assert macs(recurrent("GRU", 3, x=(2, 7, 5), layout=1)) == 2 * 7 * 9 * 8


def test_several_nodes():
    """Unknown as soon as one is."""
    net = Net(x=(1, 4, 6, 6)).conv("x", (4, 4, 3, 3)).op("Relu").conv("", (2, 4, 1, 1))
    model = read(net.model())
    found = cost(model.nodes())
    assert (found.macs, found.weight_bytes, found.convolutions) == (16 * 144 + 16 * 8, 152, 2)
    open_model = read(Net(x=(1, 4, "H", 6)).conv("x", (4, 4, 3, 3)).model())
    assert cost(open_model.nodes()).macs is None
    assert weight_bytes(model.nodes("Relu")[0]) == 0


def node_of(built, *ops):
    return read(built.model()).nodes(*ops)[0]


def matmul(op, *shapes, **attrs):
    names = dict(zip("ab", shapes, strict=True))
    return node_of(Net(**names).op(op, *names, **attrs), op)


def einsum(equation, *shapes):
    names = dict(zip("abc", shapes, strict=False))
    return node_of(Net(**names).op("Einsum", *names, equation=equation), "Einsum")


def attention(q, k, v, past=None, **heads):
    net = Net(opset=23, ir_version=10, q=q, k=k, v=v, **({"pk": past, "pv": past} if past else {}))
    cache = ("", "pk", "pv") if past else ()
    made = net.op("Attention", "q", "k", "v", *cache, outputs=3 if past else 1, **heads)
    return node_of(made, "Attention")


def causal():
    net = Net(opset=27, ir_version=13, x=(1, 4, 8))
    made = net.op("CausalConvWithState", "x", net.random(4, 1, 3), outputs=2)
    return node_of(made, "CausalConvWithState")


def deformed():
    net = Net(opset=19, ir_version=9, x=X, offset=(1, 18, 6, 6))
    return node_of(net.op("DeformConv", "x", net.random(5, 4, 3, 3), "offset"), "DeformConv")


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (node_of(Net(x=X).conv("x", (8, 4, 3, 3)), "Conv"), 8 * 4 * 9 * 36),
        (node_of(Net(x=X).conv("x", (8, 2, 3, 3), group=2), "Conv"), 8 * 2 * 9 * 36),
        (node_of(Net(x=X).conv("x", (4, 2, 2, 2), op="ConvTranspose"), "ConvTranspose"), 32 * 64),
        (matmul("Gemm", (3, 5), (5, 7)), 3 * 5 * 7),
        (matmul("Gemm", (5, 3), (7, 5), transA=1, transB=1), 3 * 5 * 7),
        (matmul("MatMul", (2, 3, 5), (5, 7)), 2 * 3 * 5 * 7),
        (matmul("MatMul", (5,), (5,)), 5),
        (matmul("MatMul", ("N", 5), (5, 7)), 5 * 7),
        (matmul("MatMul", (2, "depth"), ("depth", 7)), None),
        (matmul("MatMul", (2, 3, 5), (5, "columns")), None),
        (matmul("MatMulInteger", (2, 3, 5), (5, 7)), 2 * 3 * 5 * 7),
        (einsum("ij,jk->ik", (3, 5), (5, 7)), 3 * 5 * 7),
        (einsum("bhid, bhjd -> bhij", (2, 4, 6, 8), (2, 4, 7, 8)), 2 * 4 * 6 * 7 * 8),
        (einsum("bhid,bhjd->bhij", ("N", 4, 6, 8), ("N", 4, 7, 8)), 4 * 6 * 7 * 8),
        (einsum("...ij,...jk", (9, 2, 3, 5), (2, 5, 7)), 9 * 2 * 3 * 5 * 7),
        (einsum("...ij,jk->...ik", (2, 3, 5), (5, 7)), 2 * 3 * 5 * 7),
        (einsum("ij,jk,kl->il", (2, 3), (3, 5), (5, 7)), 2 * 3 * 5 + 2 * 5 * 7),
        (einsum("ij,kl->il", (2, 3), (5, 7)), 2 * 7),
        (einsum("ij,ij", (2, 3), (1, 3)), 2 * 3),
        (einsum("ii,i->i", (3, 3), (3,)), 3),
        (einsum("bij->bji", (2, 3, 5)), 0),
        (einsum("ij,jk->ik", (3, "J"), (5, 7)), 3 * 5 * 7),
        (einsum("ij,jk->ik", (3, 5), (5, "K")), None),
        (attention((1, 2, 4, 8), (1, 2, 6, 8), (1, 2, 6, 5)), 2 * 4 * 6 * (8 + 5)),
        (attention((1, 4, 16), (1, 6, 8), (1, 6, 8), q_num_heads=4, kv_num_heads=2), 4 * 4 * 6 * 8),
        (attention((1, 2, 4, 8), *[(1, 2, 6, 8)] * 2, past=(1, 2, 3, 8)), 2 * 4 * 9 * 16),
        (attention((1, 2, 4, 8), (1, 2, "keys", 8), (1, 2, "keys", 8)), None),
        (causal(), 4 * 8 * 3),
        (deformed(), 5 * 36 * 4 * 9),
        (node_of(Net(x=X).op("MaxPool", kernel_shape=[2, 2]), "MaxPool"), 0),
        (node_of(Net(x=X).op("Relu"), "Relu"), 0),
    ],
)  # fmt: skip
def test_macs(node, expected):
    """Multiply-accumulates of convolutions, matrix products, contractions; of others none."""
    assert macs(node) == expected


def test_macs_of_unknown_rank():
    """MACs of an unknown rank are unknown."""
    node = matmul("MatMul", (2, 3), (3, 4))
    node.inputs[0].shape = None
    assert macs(node) is None


def test_parameters():
    """Elements of the constants that a node reads."""
    conv = node_of(Net(x=X).conv("x", (8, 4, 3, 3)), "Conv")
    assert parameters(conv) == 8 * 4 * 9 + 8
    assert parameters(node_of(Net(x=X).op("Relu"), "Relu")) == 0


def test_a_chain():
    """Two tensors live at once: what a node reads and what it makes."""
    net = Net(x=(1, 2, 4, 4)).op("Relu", name="r").op("Neg", name="n").op("Abs", name="a")
    worst = peak(read(net.model()))
    assert (worst.bytes, worst.int8_bytes, worst.node) == (2 * 32 * 4, 2 * 32, "r")


def test_a_tensor_that_is_read_later():
    """A residual connection keeps its tensor until it is added."""
    net = Net(x=(1, 8)).op("Relu", name="r").op("Neg", name="n").op("Abs", name="a")
    net.op("Add", "x", net.last, name="sum")
    worst = peak(read(net.model()))
    assert (worst.bytes, worst.node) == (3 * 8 * 4, "n")


def test_constants_take_no_part():
    """Weights, and what is computed of constants alone, are no activations."""
    net = Net(x=(1, 3, 8, 8)).conv("x", (4, 3, 3, 3), pads=[1, 1, 1, 1])
    assert peak(read(net.model())).bytes == (3 + 4) * 64 * 4
    model = Net(x=(1, 8)).op("Relu").model()
    value = onnx.numpy_helper.from_array(np.ones(1000, np.float32))
    model.graph.node.insert(0, onnx.helper.make_node("Constant", [], ["k"], value=value))
    model.graph.node.insert(1, onnx.helper.make_node("Neg", ["k"], ["n"]))
    assert peak(read(model)).bytes == 2 * 8 * 4


def test_outputs_live_to_the_end():
    """A result that is ready early is still there when the last node runs."""
    net = Net(x=(1, 8)).op("Relu").op("Neg", "x").op("Abs").op("Exp", name="last")
    model = net.model()
    model.graph.output.append(onnx.helper.make_tensor_value_info("t0", 1, (1, 8)))
    assert peak(read(model)).bytes == 3 * 8 * 4


def test_integers_stay_as_wide():
    """Integers do not become int8."""
    net = Net(x=(1, 8)).op("Shape", name="s")
    worst = peak(read(net.model()))
    assert (worst.bytes, worst.int8_bytes) == (8 * 4 + 2 * 8, 8 + 2 * 8)


@pytest.mark.parametrize("shape", [(1, "h", 4), (1, None, 4)])
def test_unknown_extents(shape):
    """Unknown extents stay unknown; an open batch is one sample."""
    assert peak(read(Net(x=shape).op("Relu").model())) is None
    assert peak(read(Net(x=("N", 4)).op("Relu").model())).bytes == 32
    unknown = Net(x=(1, 4)).op("Thing", domain="com.example").op("Relu").model()
    assert peak(read(unknown)) is None


def test_unknown_types():
    """Strings have no known size."""
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.STRING, (1,))],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.STRING, (1,))],
    )
    assert peak(read(onnx.helper.make_model(graph))) is None


def test_an_output_that_nobody_reads():
    """The mask of a Dropout has no shape in many models, and takes no part."""
    net = Net(x=(1, 2, 4, 4)).op("Dropout", outputs=2).op("Relu", "t0", name="r")
    model = read(net.model())
    model.nodes("Dropout")[0].outputs[1].shape = None
    assert peak(model).bytes == 2 * 32 * 4


SPLIT = Form("split", Cost(100, 100, 4, moved_bytes=50))
DENSE = Form("dense", Cost(400, 400, 1))


def pick(*forms: Form, costs: dict | None = None, **options) -> str:
    target = chip(also={"costs": costs} if costs else {})
    forms = choose(target, context(**options).options, forms)
    return next((form.name for form in forms if form.is_chosen), "")


def test_the_cheaper_form_is_taken():
    """The weights of the target decide the cheaper form."""
    assert pick(SPLIT, DENSE) == "split"
    assert pick(DENSE, SPLIT) == "split"
    assert pick(SPLIT, DENSE, costs={"convolution": 1000}) == "dense"
    assert pick(SPLIT, DENSE, costs={"moved_byte": 100}) == "dense"


def test_crossings_have_a_price():
    """Ten transfers and their bytes, against the MACs of the dense form."""
    crossing = replace(SPLIT, cost=replace(SPLIT.cost, crossings=10, crossing_bytes=50))
    dearer = replace(DENSE, cost=replace(DENSE.cost, crossings=11))
    assert pick(crossing, DENSE) == "dense"
    assert pick(crossing, replace(DENSE, obstacle="no")) == "split"
    assert pick(crossing, dearer) == "split"
    assert pick(crossing, DENSE, costs={"crossing": 60, "crossing_byte": 0}) == "dense"
    assert pick(crossing, DENSE, costs={"crossing": 59, "crossing_byte": 0}) == "split"
    assert pick(crossing, DENSE, costs={"crossing": 0, "crossing_byte": 11}) == "split"
    assert pick(crossing, DENSE, costs={"crossing": 0, "crossing_byte": 12}) == "dense"
    assert pick(crossing, DENSE, prefer=("split",)) == "split"


def test_of_equal_costs_fewer_convolutions_are_taken():
    """The order does not matter then."""
    free = {"mac": 0, "weight_byte": 0}
    assert pick(SPLIT, DENSE, costs=free) == pick(DENSE, SPLIT, costs=free) == "dense"


def test_preferred_forms_win_if_they_are_legal():
    """Cost does not matter then, an obstacle does."""
    assert pick(SPLIT, DENSE, prefer=("dense",)) == "dense"
    assert pick(SPLIT, Form("dense", DENSE.cost, obstacle="no"), prefer=("dense",)) == "split"
    assert pick(SPLIT, DENSE, prefer=("zero-insertion",)) == "split"


def test_nothing_is_taken_where_nothing_is_legal():
    """All forms come back, none marked."""
    forms = [Form("split", SPLIT.cost, obstacle="no")]
    assert pick(*forms) == ""
    assert choose(chip(), context().options, forms) == tuple(forms)


def test_unknown_costs_leave_the_order():
    """With a dynamic extent no cost is known, so the first form is chosen."""
    unknown = Cost(None, 1)
    assert pick(Form("split", unknown), Form("dense", unknown)) == "split"
    assert Form("split", unknown).total(chip()) is None
