"""Convolutions: constants, zero points, padding and fused activations."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuconv.emit.tflite.translate import translate
from npuconv.errors import ModelError
from support.int8_layers import Case, random_case
from support.integer_conv import IntegerConv, accumulate
from support.tflite_files import differing_layers, only, operators


def layer_of(group: int, **changes) -> Case:
    """Return a layer with 4 input channels."""
    rng = np.random.default_rng(group)
    weight = rng.integers(-127, 128, (8, 4 // group, 3, 3)).astype(np.int8)
    settings = {"strides": [1, 1], "dilations": [1, 1], "pads": [0, 0, 0, 0], "group": group}
    bias = rng.integers(-999, 999, 8).astype(np.int32)
    layer = IntegerConv(weight, bias, **(settings | changes))
    x = rng.integers(-128, 128, (1, 4, 9, 8)).astype(np.int8)
    zero = np.asarray(0, np.int8)
    scales = np.linspace(1e-3, 2e-3, 8).astype(np.float32)
    return Case(layer, x, np.float32(0.5), zero, scales, np.float32(0.25), zero)


@pytest.mark.parametrize("group", [1, 2])
def test_weights_are_ohwi(group):
    """One scale for each output channel, along the first axis."""
    case = layer_of(group)
    made = translate(case.model())
    source, weight, bias = (made.graph.tensors[k] for k in only(made, "CONV_2D").inputs)
    assert source.shape == (1, 9, 8, 4)
    np.testing.assert_array_equal(weight.values.transpose(0, 3, 1, 2), case.layer.weight)
    np.testing.assert_array_equal(weight.quantization.scales, case.w_scales)
    assert weight.quantization.axis == 0
    np.testing.assert_array_equal(bias.values, case.layer.bias)
    np.testing.assert_allclose(bias.quantization.scales, case.w_scales * 0.5)


def test_depthwise_weights_are_1hwo():
    """The multiplier is in the options, the scales run along the last axis."""
    case = layer_of(4)
    made = translate(case.model())
    found = only(made, "DEPTHWISE_CONV_2D")
    weight = made.graph.tensors[found.inputs[1]]
    assert weight.shape == (1, 3, 3, 8)
    assert found.options["DepthMultiplier"] == 2
    assert weight.quantization.axis == 3
    np.testing.assert_array_equal(weight.values.transpose(3, 0, 1, 2), case.layer.weight)


@pytest.mark.parametrize(
    ("pads", "strides", "found"),
    [
        ([0, 0, 0, 0], [1, 1], ["CONV_2D"]),
        ([1, 1, 1, 1], [1, 1], ["CONV_2D"]),
        ([1, 0, 1, 1], [2, 2], ["CONV_2D"]),  # 9 rows need 1 on both sides, 8 columns 1 behind
        ([1, 1, 1, 1], [2, 2], ["PAD", "CONV_2D"]),
        ([2, 2, 2, 2], [1, 1], ["PAD", "CONV_2D"]),
    ],
)
def test_padding(pads, strides, found):
    """SAME or VALID where TFLite pads the same cells, else a PAD."""
    assert operators(layer_of(1, pads=pads, strides=strides).model()) == found


def quantized(zero: int, *before: onnx.NodeProto) -> onnx.ModelProto:
    """Return a float input with a zero point of its own, and a layer that knows it by its bias."""
    case = layer_of(1)
    model = case.model()
    model.graph.input[0].CopyFrom(
        helper.make_tensor_value_info("f", TensorProto.FLOAT, (1, 4, 9, 8))
    )
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(zero, np.int8), "own"))
    last = before[-1].output[0] if before else "f"
    node = helper.make_node("QuantizeLinear", [last, "x_scale", "own"], ["x"])
    for place, one in enumerate((*before, node)):
        model.graph.node.insert(place, one)
    return model


def test_a_zero_point_of_the_input_moves_into_the_bias():
    """The accumulators are those of the ONNX layer."""
    case, made = layer_of(1), translate(quantized(-7))
    source, weight, bias = (made.graph.tensors[k] for k in only(made, "CONV_2D").inputs)
    assert (source.quantization.zero, source.quantization.scale) == (-7, np.float32(0.5))
    moved = IntegerConv(weight.values.transpose(0, 3, 1, 2), bias.values, [1, 1], [1, 1], [0] * 4)
    np.testing.assert_array_equal(accumulate(moved, case.x, -7), accumulate(case.layer, case.x))
    assert [o.code for o in made.graph.operators] == ["QUANTIZE", "CONV_2D"]


def test_what_the_host_pads_is_padded_as_integers():
    """TFLite pads with the zero point, so the PAD comes behind the QUANTIZE."""
    pad = helper.make_node("Pad", ["f", "ends"], ["p"])
    model = quantized(-7, pad)
    ends = np.asarray([0, 0, 1, 1, 0, 0, 1, 1], np.int64)
    model.graph.initializer.append(numpy_helper.from_array(ends, "ends"))
    assert operators(model) == ["QUANTIZE", "PAD", "CONV_2D"]


def clipped(op: str, *bounds: int) -> onnx.ModelProto:
    """Return a layer with an activation on its integers."""
    model = layer_of(1).model()
    names = [f"bound{k}" for k in range(len(bounds))]
    for name, bound in zip(names, bounds, strict=True):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(bound, np.int8), name))
    model.graph.node.append(helper.make_node(op, ["y", *names], ["r"]))
    model.graph.output[0].name = "r"
    return model


@pytest.mark.parametrize(
    ("op", "bounds", "activation", "rest"),
    [
        ("Relu", (), 1, []),
        ("Clip", (0, 127), 1, []),
        ("Clip", (0, 24), 3, []),  # 6 / 0.25
        ("Clip", (-128, 127), 0, []),
        ("Clip", (0, 23), 0, ["MAXIMUM", "MINIMUM"]),
    ],
)
def test_activations(op, bounds, activation, rest):
    """RELU and RELU6 are fused where they cut off the same integers."""
    made = translate(clipped(op, *bounds))
    assert only(made, "CONV_2D").options["FusedActivationFunction"] == activation
    assert [o.code for o in made.graph.operators] == ["CONV_2D", *rest]
    assert made.outputs[0].tensor.name == "r"


def test_a_convolution_of_one_axis_is_refused():
    """TFLite has none; the message names the layer."""
    case = layer_of(1)
    layer = IntegerConv(case.layer.weight[:, :, 0], None, [1], [1], [0, 0])
    one = Case(layer, case.x[:, :, 0], *list(vars(case).values())[2:])
    with pytest.raises(ModelError, match="'conv': TFLite has convolutions of two axes"):
        translate(one.model())


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_reference_kernels_give_our_integers(first):
    """Random layers: LiteRT's reference kernels equal the simulator, bit by bit."""
    total = 0
    for seed in range(first, first + 20):
        case = random_case(seed)
        if case.layer.weight.ndim != 4 or case.x_zero.any():
            continue
        model = case.model()
        model.metadata_props.add(key="npuconv.requantize", value="gemmlowp")
        compared, wrong = differing_layers(model, {"x": case.x})
        assert wrong == [], seed
        total += compared
    assert total
