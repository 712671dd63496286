"""Tests of fold-constants."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.numpy_helper import to_array

from npuconv.partition.costs import cost
from support.asserts import context, read, refusals, run_pass, same_numbers
from support.builders import Net

NAME = "fold-constants"


def filled() -> Net:
    """Weights made by ConstantOfShape."""
    net, value = Net(x=(1, 3, 8, 8)), helper.make_tensor("v", 1, [1], [0.5])
    net.op("ConstantOfShape", net.constant(np.array([4, 3, 3, 3])), value=value)
    return net.op("Conv", "x", net.last)


def dequantized() -> Net:
    """Weights stored as int8."""
    net = Net(x=(1, 3, 8, 8))
    weight = net.constant(np.arange(108, dtype=np.int8).reshape(4, 3, 3, 3))
    scale, zero = net.random(4, low=0.1), net.constant(np.zeros(4, np.int8))
    return net.op("DequantizeLinear", weight, scale, zero, axis=0).op("Conv", "x", "t0")


def constant(**value: object) -> Net:
    """A Constant node and an Add that reads it."""
    net = Net(x=(1, 4))
    net.nodes.append(helper.make_node("Constant", [], ["c"], name="constant", **value))
    return net.op("Add", "x", "c")


def expanded(*shape: int) -> Net:
    """A constant that grows."""
    net = Net(x=(1, 3))
    net.op("Expand", net.random(1, 1), net.constant(np.array(shape)), name="expand")
    return net.op("ReduceSum").op("Add", "x", net.last)


def random() -> Net:
    """Noise of the shape of a constant."""
    net = Net(x=(1, 3))
    return net.op("RandomNormalLike", net.random(1, 3)).op("Add", "x", "t0")


def refused(fmod: int = 0) -> Net:
    """Mod of floats, which onnxruntime computes with fmod=1 only, and a Neg beside it."""
    net = Net(x=(2, 3))
    net.op("Mod", net.random(2, 3), net.random(2, 3), fmod=fmod, name="mod")
    net.op("Neg", net.random(2, 3), name="neg")
    return net.op("Add", "x", "t0").op("Add", "t2", "t1")


def output_of_constants() -> Net:
    """An output that depends on no input."""
    net = Net(x=(1, 3)).op("Relu").output()
    return net.op("Neg", net.random(2), to="y").output()


def like(dtype: int = TensorProto.FLOAT) -> Net:
    """A bias of a constant that takes the type of the input."""
    net = Net(opset=18, x=(1, 3, 8, 8))
    net.inputs[0].type.tensor_type.elem_type = dtype
    net.op("CastLike", net.constant(np.float16(0.5)), "x")
    net.op("Expand", net.last, net.constant(np.array([8])))
    return net.op("Add", "x", net.last)


def identity() -> Net:
    """Weights that only move channels, made from the extents of the input."""
    net = Net(x=(1, 3, 8, 8)).reshape([3, 64]).op("EyeLike", k=1)
    net.op("Slice", net.last, *(net.constant(np.array([i])) for i in (0, 3, 1)))
    return net.reshape([3, 3, 1, 1]).op("Conv", "x", net.last)


def also_an_output() -> Net:
    """A bias that a node makes of constants, and that is an output of the model."""
    net = Net(x=(1, 3, 8, 8))
    net.op("Expand", net.constant(np.array([0.5])), net.constant(np.array([4])), to="b")
    return net.op("Conv", "x", net.random(4, 3, 3, 3), "b").output().output("b")


def product(depth: int = 2) -> Net:
    """A product of constants, whose depth may be 0."""
    net = Net(x=(1, 3, 6, 6))
    return net.op("MatMul", net.random(6, depth), net.random(depth, 6)).op("Add", "x", net.last)


def sequence() -> Net:
    """A constant that was cut into a sequence."""
    net = Net(x=(1, 1)).op("SplitToSequence", "c0")
    net.random(8, name="c0")
    return net.op("SequenceAt", net.last, net.constant(np.int64(1))).op("Add", "x", net.last)


FIRES = [
    lambda: filled().model(),
    lambda: dequantized().model(),
    lambda: constant(value_float=2.0).model(),
    lambda: Net(x=(1, 3, 8, 8)).op("Shape").op("Reshape", "x", "t0").model(),
    lambda: Net(x=(2, 3)).op("Size").reshape([1]).op("Reshape", "x", "t1").model(),
    lambda: refused(fmod=1).model(),
    lambda: like().model(),
    lambda: identity().model(),
    lambda: also_an_output().model(),
    lambda: product().model(),
    lambda: product(0).model(),
]
SILENT = [
    lambda: sequence().model(),
    lambda: Net(x=(1, 3, 8, 8)).conv().model(),
    lambda: Net(x=("N", 3)).op("Shape").op("Reshape", "x", "t0").model(),
    lambda: random().model(),
    lambda: output_of_constants().model(),
]
# Its numbers are random.
NOT_RUNNABLE = [SILENT[3]]


@pytest.mark.parametrize("build", [filled, dequantized])
def test_weights_become_constants(build):
    """ConstantOfShape and DequantizeLinear leave only the convolution."""
    proto = build().model()
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 1
    (conv,) = model.nodes()
    assert conv.inputs[1].values.shape == (4, 3, 3, 3)
    assert model.origin(conv) == ("conv1",)
    (record,) = ctx.rewrites
    assert record.after == "initializers"
    assert "onnx.reference" in record.reference
    same_numbers(proto, model)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"value_float": 2.0}, 2.0),
        ({"value_floats": [1.0, 2.0, 3.0, 4.0]}, [1, 2, 3, 4]),
        ({"value": helper.make_tensor("v", 1, [1], [7.0])}, [7]),
    ],
)
def test_constant_nodes(value, expected):
    """Every spelling of a Constant becomes an initializer."""
    model = read(constant(**value).model())
    assert run_pass(NAME, model) == 1
    (add,) = model.nodes()
    assert np.array_equal(add.inputs[1].values, expected)


def test_shape_of_a_static_tensor():
    """``start`` and ``end`` cut a window out of the shape."""
    net = Net(x=(1, 3, 8, 6), y=(3, 8)).op("Shape", start=1, end=-1)
    model = read(net.op("Reshape", net.random(24), "t0").op("Add", "y", "t1").model())
    assert run_pass(NAME, model) == 2
    assert model.nodes()[0].inputs[1].values.shape == (3, 8)


@pytest.mark.parametrize("build", [like, identity, also_an_output])
def test_a_value_that_depends_on_type_or_extents(build):
    """CastLike and EyeLike read an input of the model, but not its values."""
    proto = build().model()
    model = read(proto)
    assert run_pass(NAME, model)
    reader = next(node for node in model.nodes() if node.op in ("Conv", "Add"))
    while run_pass(NAME, model):
        pass
    assert all(hasattr(type(tensor), "values") for tensor in list(reader.inputs)[1:])
    same_numbers(proto, model)


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.INT64, TensorProto.BFLOAT16])
def test_cast_like_is_a_cast(dtype):
    """Numpy has no name for some of the types."""
    net = Net(opset=18, x=(1, 3), y=(1, 3))
    net.inputs[1].type.tensor_type.elem_type = dtype
    model = read(net.op("CastLike", "x", "y", name="like").model())
    assert run_pass(NAME, model) == 1
    (cast,) = model.nodes()
    assert (cast.op, cast.name, cast.attrs["to"]) == ("Cast", "like", dtype)


def test_a_symbolic_shape_stays():
    """Another input might have another extent."""
    assert refusals(NAME, SILENT[2]()) == []


def test_the_size_limit():
    """A constant over max_folded_mib stays computed, and what reads it, too."""
    proto = expanded(1024, 1024).model()
    model, ctx = read(proto), context(max_folded_mib=1)
    assert run_pass(NAME, model, ctx) == 0
    (refusal,) = ctx.refusals
    assert (refusal.node, refusal.reason) == (
        "expand",
        "its result has 4 MiB, over max_folded_mib",
    )
    assert run_pass(NAME, model, context(max_folded_mib=4)) == 2
    same_numbers(proto, model)


def test_a_size_nobody_knows():
    """A node whose result may grow unbounded is not run."""
    net = Net(x=(1, 3))
    net.op("NonZero", net.constant(np.ones(3, np.float32)))
    zero, one = net.constant(np.int64(0)), net.constant(np.int64(1))
    net.op("ReduceMax", net.last, keepdims=0).op("Range", zero, "t1", one, name="range")
    net.op("ReduceMax", "t2", keepdims=0).op("Gather", "x", "t3", axis=1)
    model, ctx = read(net.model()), context()
    run_pass(NAME, model, ctx)
    assert [(r.node, r.reason) for r in ctx.refusals] == [
        ("range", "the size of its result is not known before it runs")
    ]


def test_random_numbers_stay_random():
    """Noise is drawn anew in every run."""
    model, ctx = read(SILENT[3]()), context()
    assert run_pass(NAME, model, ctx) == 0
    assert [n.op for n in model.nodes()] == ["RandomNormalLike", "Add"]


def test_a_node_onnxruntime_refuses():
    """A refused node stays and is named; the others are folded."""
    model, ctx = read(refused().model()), context()
    assert run_pass(NAME, model, ctx) == 1
    assert [n.op for n in model.nodes()] == ["Mod", "Add", "Add"]
    (refusal,) = ctx.refusals
    assert refusal.node == "mod"
    assert refusal.reason.startswith("onnxruntime does not compute it: ")
    assert [r.before for r in ctx.rewrites] == ["1 of 2 nodes on constants (Mod x 1, Neg x 1)"]


def test_nothing_folded_is_no_rewrite():
    """The report lists what changed, not what was tried."""
    model, ctx = read(refused().model()), context()
    run_pass(NAME, model, ctx)
    assert run_pass(NAME, model, ctx) == 0
    assert len(ctx.rewrites) == 1


def test_an_output_made_of_constants_stays():
    """A runtime must still make it."""
    proto = output_of_constants().model()
    model = read(proto)
    assert run_pass(NAME, model) == 0
    same_numbers(proto, model)


@pytest.mark.parametrize("kind", ["INT4", "UINT4", "INT2", "FLOAT8E4M3FN", "INT16"])
def test_weights_of_few_bits(kind):
    """Weights that onnxruntime takes as initializers only are folded too, with block scales."""
    net = Net(x=(1, 4, 8, 8), opset=25, ir_version=13)
    numbers = np.arange(144) % 2
    net.initializers.append(
        helper.make_tensor("q", getattr(TensorProto, kind), (4, 4, 3, 3), numbers)
    )
    scale = net.random(4, 2, 3, 3, low=0.1)
    net.op("DequantizeLinear", "q", scale, axis=1, block_size=2).op("Conv", "x", "t0")
    model = read(net.model())
    assert run_pass(NAME, model) == 1
    (conv,) = model.nodes()
    wanted = numbers.reshape(4, 4, 3, 3) * np.repeat(to_array(net.initializers[1]), 2, axis=1)
    np.testing.assert_array_equal(conv.inputs[1].values, wanted.astype(np.float32))


@pytest.mark.parametrize(("depth", "macs"), [(2, 72), (0, None)])
def test_a_product_of_constants(depth, macs):
    """A product has costs before it is folded; an extent of 0 counts as not known."""
    model = read(product(depth).model())
    assert cost(model.nodes()).macs == macs
    assert run_pass(NAME, model) == 1
    assert cost(model.nodes()).macs == 0
