"""Tests of widen-convolutions."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import npuconv
from npuconv.executor import Session
from npuconv.model import query
from support.asserts import context, read, run_pass, same_numbers
from support.builders import Net, images

NAME = "widen-convolutions"
KINDS = {np.float16: TensorProto.FLOAT16, np.float64: TensorProto.DOUBLE}


def cast(net: Net, kind: int) -> Net:
    """Append a Cast (``to`` is taken by the builder)."""
    result = f"cast{len(net.nodes)}"
    net.nodes.append(helper.make_node("Cast", [net.last], [result], name=result, to=kind))
    net.last = result
    return net


def narrow(kind: type, op: str = "Conv", bias: bool = True) -> Net:
    """A float32 model with one convolution in another precision."""
    net = cast(Net(x=(1, 3, 8, 8)), KINDS[kind])
    rng = np.random.default_rng(1)
    shape = (4, 3, 3, 3) if op == "Conv" else (3, 4, 3, 3)
    names = [net.last]
    for name, dims in (("w", shape), ("b", (4,)))[: 2 if bias else 1]:
        array = rng.uniform(-0.5, 0.5, dims).astype(kind)
        net.initializers.append(helper.make_tensor(name, KINDS[kind], dims, array.tobytes(), True))
        names.append(name)
    return cast(net.op(op, *names, name="conv"), TensorProto.FLOAT)


FIRES = [
    lambda: narrow(np.float16).model(),
    lambda: narrow(np.float64).model(),
    lambda: narrow(np.float16, "ConvTranspose", bias=False).model(),
]
# onnxruntime has no convolution in double precision.
NOT_RUNNABLE = [FIRES[1]]
# Half precision itself is the larger error.
RTOL = 2e-3
SILENT = [
    lambda: Net(x=(1, 3, 8, 8)).conv().model(),
    lambda: Net(x=(1, 3, 8, 8), w=(4, 3, 3, 3)).op("Conv", "x", "w").model(),
]


@pytest.mark.parametrize("build", FIRES)
def test_casts_around(build):
    """The convolution computes in float32; its neighbours see what they saw."""
    proto = build()
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 1
    op = proto.graph.node[1].op_type
    assert [n.op for n in model.nodes()] == ["Cast", "Cast", op, "Cast", "Cast"]
    before, conv, after = model.nodes()[1:4]
    assert {query.dtype_name(t) for t in (*conv.inputs, *conv.outputs)} == {"float32"}
    assert before.inputs[0].dtype == after.outputs[0].dtype
    assert query.dtype_name(after.outputs[0]) in ("float16", "float64")
    assert model.origin(before) == model.origin(conv) == model.origin(after) == ("conv",)
    assert [(r.after, r.max_abs_difference) for r in ctx.rewrites] == [("in float32", None)]
    if build not in NOT_RUNNABLE:
        same_numbers(proto, model, rtol=RTOL)


def test_a_bias_computed_at_run_time():
    """A computed bias is cast too: one operator takes one type."""
    net = Net(x=(1, 3, 8, 8), b=(4,))
    net.last = "b"
    cast(net, TensorProto.FLOAT16)
    net.last = "x"
    cast(net, TensorProto.FLOAT16)
    weight = np.full((4, 3, 3, 3), 0.25, np.float16)
    net.op("Conv", net.last, net.constant(weight), "cast0", name="conv")
    proto = cast(net, TensorProto.FLOAT).model()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    assert query.dtype_name(model.nodes("Conv")[0].inputs[2]) == "float32"
    same_numbers(proto, model, rtol=RTOL)


def test_outputs_of_the_model_keep_type_and_name():
    """A half precision model stays one on the outside."""
    net = Net(x=(1, 3, 8, 8))
    net.inputs[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    weight = net.constant(np.ones((4, 3, 3, 3), np.float16))
    proto = net.op("Conv", "x", weight, to="y").model()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    (output,) = model.graph.outputs
    assert (output.name, output.dtype) == ("y", np.dtype(np.float16))


def test_a_shared_weight():
    """Each convolution gets its own in float32."""
    net = cast(Net(x=(1, 3, 8, 8)), TensorProto.FLOAT16)
    weight = net.constant(np.full((4, 3, 3, 3), 0.25, np.float16))
    source = net.last
    net.op("Conv", source, weight, to="a").op("Conv", source, weight, to="b").op("Add", "a", "b")
    proto = cast(net, TensorProto.FLOAT).model()
    model = read(proto)
    assert run_pass(NAME, model) == 2
    same_numbers(proto, model, rtol=RTOL)


def halved(net: Net, kind: int) -> onnx.ModelProto:
    """The model with every float tensor in another precision."""
    model = net.model()
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            numbers = numpy_helper.to_array(tensor)
            tensor.CopyFrom(helper.make_tensor(tensor.name, kind, numbers.shape, numbers.ravel()))
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.elem_type = kind
    return model


def block() -> Net:
    """Two convolutions, and between them what fuses with the first."""
    net = Net(x=(1, 3, 8, 8), opset=22, ir_version=10)
    return net.conv("x").batchnorm(4).op("Relu").conv("", (4, 4, 3, 3), auto_pad="SAME_UPPER")


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_what_fuses_with_a_convolution_is_widened_with_it(kind):
    """BatchNormalization is folded and Relu fused: no Cast stands between."""
    found = npuconv.convert(halved(block(), kind), format="float").model
    ops = [node.op_type for node in found.graph.node if node.op_type != "Cast"]
    assert ops == ["Conv", "Relu", "Conv"]
    half, sample = kind == TensorProto.FLOAT16, images(1, 3, 8, 8)
    (exact,) = Session(block().model()).run({"x": sample}).values()
    (near,) = Session(found).run({"x": sample.astype(np.float16) if half else sample}).values()
    gap = near.astype(np.float32) - exact
    assert np.abs(gap).max() <= 2e-2 * np.abs(exact).max()


def test_bfloat16_is_float32_on_the_outside():
    """Numpy has no such type, so nobody could give samples or see results."""
    proto, samples = halved(block(), TensorProto.BFLOAT16), {"x": images(4, 3, 8, 8)}
    result = npuconv.convert(proto, calibration=samples)
    graph = result.model.graph
    kinds = {info.type.tensor_type.elem_type for info in (*graph.input, *graph.output)}
    assert kinds == {TensorProto.FLOAT}
    ops = [node.op_type for node in graph.node]
    assert (ops.count("QLinearConv"), ops.count("Cast")) == (2, 0)
    assert result.report.accuracy.sqnr_db > 20
    assert npuconv.check(proto).summary.verdict == "convertible"


def test_a_half_that_others_read_stays():
    """A tensor that an If reads in its branch keeps its type."""
    branch = Net(prefix="b_").op("Neg", "t0")
    other = Net(prefix="o_").op("Abs", "t0")
    net = cast(Net(x=(1, 3, 8, 8)), TensorProto.FLOAT16)
    source = net.last
    net.op("Conv", source, net.constant(np.ones((4, 3, 3, 3), np.float16)), to="t0")
    cast(net, TensorProto.FLOAT).branch(branch, other)
    model = read(net.model())
    assert run_pass(NAME, model) == 1
    (tensor,) = (t for n in model.nodes("Cast") for t in n.outputs if t.name == "t0")
    assert query.dtype_name(tensor) == "float16"
