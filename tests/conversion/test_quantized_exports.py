"""Quantized models as exporters leave them: scales and integers are found wherever they stand."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import npuconv
from npuconv import executor
from npuconv.evaluate.integer_form import in_integers
from npuconv.evaluate.pairs import Opened
from support.quantized_nets import Quantized, operators, trained

X = (1, 3, 8, 8)
FOUR = [0.005, 0.004, 0.003, 0.006]


def as_constants(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model with a Constant node for each initializer, as PyTorch writes scales."""
    made = [helper.make_node("Constant", [], [t.name], value=t) for t in proto.graph.initializer]
    nodes = [*made, *proto.graph.node]
    for field in (proto.graph.initializer, proto.graph.node):
        del field[:]
    proto.graph.node.extend(nodes)
    return proto


def of_onnxruntime() -> onnx.ModelProto:
    """Conversions of com.microsoft, which onnxruntime writes for types that an opset lacks."""
    net = Quantized(opset=11, ir_version=6, x=X).fake(0.03)
    net.initializers.append(helper.make_tensor("w", TensorProto.INT4, (3, 3, 1, 1), range(-4, 5)))
    net.initializers.append(helper.make_tensor("zero", TensorProto.INT4, (), [0]))
    source = net.last
    net.op("DequantizeLinear", "w", net.constant(np.float32(0.1)), "zero")
    proto = net.op("Conv", source, net.last).fake(0.051).model()
    for node in proto.graph.node:
        node.domain = "com.microsoft" if node.op_type != "Conv" else ""
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return proto


def normalized() -> onnx.ModelProto:
    """A BatchNormalization behind integer weights: its factors are scales."""
    net = Quantized(x=X).fake(0.03).qdq_conv((4, 3, 3, 3), FOUR)
    return net.batchnorm(4).op("Relu").fake(0.021, -128).model()  # type: ignore[attr-defined]


def narrow(dtype: type, zero: int, *bounds: int) -> onnx.ModelProto:
    """A Clip on integers: PyTorch's 7 bits, Brevitas' narrow range; of weights, too."""
    net = Quantized(x=X).quantize(0.03, zero, dtype)
    net.op("Clip", net.last, *(net.constant(dtype(bound)) for bound in bounds))
    source = net.dequantize(0.03, zero, dtype).last
    scale, point = net.parameters(0.005, 0)
    net.op("QuantizeLinear", net.random(4, 3, 3, 3), scale, point)
    net.op("Clip", net.last, *(net.constant(np.int8(bound)) for bound in (-7, 7)))
    net.op("DequantizeLinear", net.last, scale, point)
    return net.op("Conv", source, net.last).fake(0.021).model()


def channels_last() -> onnx.ModelProto:
    """tf2onnx: Transposes around each layer, and behind the DequantizeLinear of its weights."""
    net = Quantized(x=(1, 8, 8, 3)).fake(0.03)
    source = net.op("Transpose", perm=[0, 3, 1, 2]).last
    net.op("DequantizeLinear", net.integers(3, 3, 3, 4), *net.parameters(FOUR, 0), axis=3)
    net.op("Transpose", perm=[3, 2, 0, 1])
    net.op("Conv", source, net.last, net.random(4)).op("Transpose", perm=[0, 2, 3, 1])
    source = net.op("Relu").fake(0.021, -128).op("Transpose", perm=[0, 3, 1, 2]).last
    net.op("DequantizeLinear", net.integers(3, 3, 4, 1), *net.parameters(FOUR, 0), axis=2)
    net.op("Transpose", perm=[3, 2, 0, 1]).reshape([4, 1, 3, 3])
    net.op("Conv", source, net.last, group=4).op("Transpose", perm=[0, 2, 3, 1])
    return net.fake(0.013).model()


def product(transposed: bool) -> onnx.ModelProto:
    """A Gemm or MatMul, which becomes a convolution of a tensor of another rank."""
    net = Quantized(x=(1, 12)).fake(0.03, 7)
    source, shape = net.last, (4, 12) if transposed else (12, 4)
    weight = [net.integers(*shape), *net.parameters(FOUR, 0)]
    net.op("DequantizeLinear", *weight, axis=0 if transposed else -1)
    op, attrs = ("Gemm", {"transB": 1}) if transposed else ("MatMul", {})
    return net.op(op, source, net.last, **attrs).fake(0.1, 3).model()


def in_pieces(op: str, shape: tuple[int, ...], axis: int, **attrs) -> onnx.ModelProto:
    """A layer that becomes several, or one with its channels several times."""
    net = Quantized(x=(1, 4, 8, 8)).fake(0.03)
    source = net.last
    net.op("DequantizeLinear", net.integers(*shape), *net.parameters(FOUR, 0), axis=axis)
    return net.op(op, source, net.last, **attrs).fake(0.093).model()


def four_bits() -> onnx.ModelProto:
    """Weights of 4 bits, which 8 bits hold."""
    net = Quantized(opset=21, ir_version=10, x=X).fake(0.03)
    values = np.arange(12) % 15 - 7
    net.initializers.append(helper.make_tensor("w", TensorProto.INT4, (4, 3, 1, 1), values))
    source = net.last
    net.op("DequantizeLinear", "w", net.constant(np.float32(0.1)))
    return net.op("Conv", source, net.last).fake(0.051).model()


def integers_of_a_cast() -> onnx.ModelProto:
    """Integers that no QuantizeLinear makes."""
    net = Quantized(x=X)
    net.nodes.append(helper.make_node("Cast", ["x"], ["cast"], to=TensorProto.INT8))
    net.last = "cast"
    return net.dequantize(0.5).qdq_conv((4, 3, 3, 3), 0.002).fake(0.093).model()


EXPORTS = {
    "constant nodes": lambda: as_constants(trained()),
    "constant nodes, operators": lambda: as_constants(operators(np.uint8, 125)),
    "7 bits": lambda: narrow(np.uint8, 64, 0, 127),
    "narrow range": lambda: narrow(np.int8, 0, -127, 127),
    "channels last": channels_last,
    "Gemm": lambda: product(True),
    "MatMul": lambda: product(False),
    "one axis": lambda: Quantized(x=(1, 3, 16)).fake(0.03).qdq_conv((4, 3, 3), FOUR).fake(0.02)
    .model(),
    "groups": lambda: in_pieces("Conv", (4, 2, 3, 3), 0, group=2, pads=[1] * 4),
    "ConvTranspose": lambda: in_pieces("ConvTranspose", (4, 4, 2, 2), 1, strides=[2, 2]),
    "4 bits": four_bits,
    "Cast": integers_of_a_cast,
    "onnxruntime": of_onnxruntime,
    "BatchNormalization": normalized,
}  # fmt: skip


@pytest.mark.parametrize("form", ["qoperator", "qdq"])
@pytest.mark.parametrize("build", EXPORTS.values(), ids=EXPORTS)
def test_all_is_kept(build, form):
    """Every scale, every weight; a few values move by a step, where a sum or a bias rounds."""
    proto = build()
    result = npuconv.convert(proto, format=form, verify=False)
    found = result.report.quantization.source_scales
    assert (found.tensors, found.layers) == (found.all_tensors, found.all_layers)
    assert found.changed == ()
    steps = apart(proto, result)
    assert steps.max() <= 1
    assert steps.mean() < 0.01


@pytest.mark.parametrize(("form", "fused"), [("qdq", False), ("qoperator", True)])
def test_ties_round_as_in_the_original(form, fused):
    """Every product lies on a tie often: factors are 0.02. Fused, the original is in integers."""
    net = Quantized(x=X).fake(0.02)
    for shape in ((4, 3, 3, 3), (4, 4, 3, 3)):
        source = net.last
        net.op("DequantizeLinear", net.integers(*shape), *net.parameters(0.02, 0))
        net.op("Conv", source, net.last, pads=[1] * 4).fake(0.02)  # type: ignore[attr-defined]
    proto = net.model()
    result = npuconv.convert(proto, format=form, verify=False)
    original = in_integers(Opened(proto, "", "")).proto
    assert not apart(original if fused else proto, result).any()
    assert apart(proto if fused else original, result).any()


def apart(proto: onnx.ModelProto, result: npuconv.Conversion) -> np.ndarray:
    """Return by how many steps of the last tensor each value differs from the original's."""
    (given,) = proto.graph.input
    shape = [dim.dim_value for dim in given.type.tensor_type.shape.dim]
    rng = np.random.default_rng(0)
    feeds = [{"x": rng.uniform(-2, 2, shape).astype(np.float32)} for _ in range(12)]
    models = (proto, result.model)
    sessions = (executor.Session(model, threads=1, optimize=False) for model in models)
    one, two = (np.stack([next(iter(s.run(f).values())) for f in feeds]) for s in sessions)
    return np.rint(np.abs(one - two) / result.report.quantization.tensors[-1].scale)


def test_weights_of_blocks_are_rounded_anew():
    """The device has a scale for each output channel; the report says so."""
    net = Quantized(opset=21, ir_version=10, x=(1, 8)).fake(0.03)
    source = net.last
    scales = net.constant(np.full((2, 4), 0.01, np.float32))
    net.op("DequantizeLinear", net.integers(8, 4), scales, axis=0, block_size=4)
    proto = net.op("MatMul", source, net.last, name="product").fake(0.05).model()
    found = npuconv.convert(proto, verify=False).report.quantization.source_scales
    assert [(one.name, one.reason) for one in found.changed] == [
        ("product", "its scales are of blocks")
    ]


def test_a_tensor_with_two_scales_has_one():
    """Rounded twice in a row: the report names what is left out."""
    proto = Quantized(x=X).fake(0.03).fake(0.05).qdq_conv((4, 3, 3, 3), 0.002).fake(0.02).model()
    found = npuconv.convert(proto, verify=False).report.quantization.source_scales
    assert [(one.name, one.reason) for one in found.changed] == [
        ("x", "it has several scales, of which the first is kept")
    ]


@pytest.mark.parametrize("opset", [10, 11, 12, 13, 16, 19, 21])
def test_opsets(opset):
    """Conversions of every opset that has them give the same integers."""
    versions = {10: 5, 11: 6, 12: 7, 13: 7, 16: 8, 19: 9, 21: 10}
    net = Quantized(opset=opset, ir_version=versions[opset], x=X).fake(0.03)
    source = net.last
    net.op("DequantizeLinear", net.integers(4, 3, 3, 3), *net.parameters(0.002, 0))
    bias = net.constant(np.float32([0.006, 0.12, -0.03, 0]))
    proto = net.op("Conv", source, net.last, bias).fake(0.0173).model()
    assert not apart(proto, npuconv.convert(proto, verify=False)).any()


def test_types_that_are_no_integers_are_refused_by_name():
    """float8 has no int8 that is the same."""
    net = Quantized(opset=19, ir_version=9, x=X)
    zero = helper.make_tensor("zero", TensorProto.FLOAT8E4M3FN, (), [0.0])
    net.initializers.append(zero)
    scale = net.constant(np.float32(0.1))
    net.op("QuantizeLinear", "x", scale, "zero").op("DequantizeLinear", net.last, scale, "zero")
    with pytest.raises(npuconv.UnsupportedModelError) as caught:
        npuconv.convert(net.conv().model())
    (found,) = (f for f in caught.value.report.findings if f.severity == "error")
    assert found.message.endswith("its zero point is float8_e4m3fn, no integer")
