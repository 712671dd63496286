"""Simulator: float arithmetic with the same integers, layer by layer and for other operators."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuconv.arithmetic.device import float_factors, shifts
from npuconv.arithmetic.gemmlowp import multipliers
from npuconv.evaluate.simulator import as_float
from support.builders import Net, images
from support.int8_layers import Case, integers, ops, random_case, run, same
from support.integer_conv import IntegerConv, accumulate, by_float, by_gemmlowp, by_shift, convolve


def device(case: Case) -> np.ndarray:
    """Compute the output by definition."""
    factors = float_factors(case.x_scale, case.w_scales, case.y_scale)
    return convolve(
        case.layer, case.x, lambda total: by_float(total, factors, case.y_zero), int(case.x_zero)
    )


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_random_layers(first):
    """Outputs equal those of the device to the bit, ties included, with any optimization."""
    for seed in range(first, first + 50):
        case = random_case(seed, y_zero=seed % 5 - 2)
        made = as_float(case.model())
        assert "QLinearConv" not in ops(made)
        for optimize in (False, True):
            found = run(made, case.x, optimize=optimize)
            np.testing.assert_array_equal(found, device(case), str(seed))


@pytest.mark.parametrize("wide_scales", [False, True])
def test_gemmlowp(wide_scales):
    """Models that say so are rounded twice, as the reference kernels of TFLite do."""
    differing = 0
    for seed in range(40):
        case = random_case(seed, y_zero=seed % 5 - 2)
        if wide_scales:  # factors above 1, which are shifted left
            case.w_scales[...] *= np.float32(2.0**14)
        model = case.model()
        model.metadata_props.add(key="npuconv.requantize", value="gemmlowp")
        factors = multipliers(case.x_scale, case.w_scales, case.y_scale)
        wanted = convolve(
            case.layer,
            case.x,
            lambda total, f=factors, z=case.y_zero: by_gemmlowp(total, f, z),
            int(case.x_zero),
        )
        for optimize in (False, True):
            found = run(as_float(model), case.x, optimize=optimize)
            np.testing.assert_array_equal(found, wanted, str(seed))
        differing += int((wanted != device(case)).sum())
    assert wide_scales or differing, "the two ways of rounding differ somewhere"


@pytest.mark.parametrize("rounding", ["half_away", "half_up", "half_even"])
def test_shifts(rounding):
    """Models that say so multiply by integers of so many bits, and round as the device does."""
    for seed in range(20):
        case = random_case(seed, y_zero=seed % 5 - 2)
        model = case.model()
        model.metadata_props.add(key="npuconv.requantize", value=f"shift 8 40 {rounding}")
        factors = float_factors(case.x_scale, case.w_scales, case.y_scale)
        by = shifts(factors, bits=8, max_shift=40)
        wanted = convolve(
            case.layer,
            case.x,
            lambda total, b=by, z=case.y_zero: by_shift(total, b.multiplier, b.shift, z, rounding),
            int(case.x_zero),
        )
        np.testing.assert_array_equal(run(as_float(model), case.x), wanted, str(seed))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_zero_points_and_types(dtype):
    """Padding is the zero point, for both 8-bit types."""
    for seed in range(20):
        case = random_case(seed, dtype=dtype, x_zero=seed + 1, y_zero=7)
        weight = case.layer.weight.astype(dtype) if dtype is np.uint8 else case.layer.weight
        case.layer.__dict__["weight"] = weight
        same(case.model(), {"x": case.x})


@pytest.mark.parametrize("seed", range(5))
def test_channels_last(seed):
    """com.microsoft's QLinearConv with the channels last is supported."""
    case = random_case(seed, channels=4)
    same(case.model(last=True), {"x": np.moveaxis(case.x, 1, -1).copy()})


def wide(group: int = 1, bias: int = 1) -> Case:
    """Return a layer whose sums are beyond the integers of float32."""
    rng = np.random.default_rng(3)
    shape = (2, 3000, 1, 1) if group == 1 else (group, 1, 3, 3)
    weight = rng.integers(90, 128, shape).astype(np.int8)
    channels = 3000 if group == 1 else group
    x = rng.integers(100, 128, (1, channels, 4, 4)).astype(np.int8)
    layer = IntegerConv(
        weight, np.full(len(weight), bias, np.int32), [1, 1], [1, 1], [shape[2] // 2] * 4, group
    )
    total = np.abs(accumulate(layer, x)).max()
    scales = np.full(len(weight), 100 / total, np.float32)
    one = np.float32(1)
    return Case(layer, x, one, np.asarray(0, np.int8), scales, one, np.asarray(0, np.int8))


@pytest.mark.parametrize(("group", "bias"), [(1, 1), (1, 2**30 + 1), (4, 2**29 + 1)])
def test_wide_sums(group, bias):
    """Wide sums are computed in parts and added as integers, without an error."""
    case = wide(group, bias)
    made = as_float(case.model())
    convolutions = [n for n in made.graph.node if n.op_type == "Conv"]
    assert len(convolutions) == (3 if group == 1 else 1)
    np.testing.assert_array_equal(run(made, case.x), device(case))


@pytest.mark.parametrize("channels", [1, 3])
def test_a_kernel_whose_sums_are_too_large(channels):
    """A kernel too wide in one channel is taken in parts with zeros between them."""
    weight = np.full((channels, 1, 40, 40), 127, np.int8)
    weight[:, :, ::3] = -120
    layer = IntegerConv(weight, None, [1, 1], [1, 1], [0] * 4, channels)
    x = np.full((1, channels, 41, 41), 127, np.int8)
    x[:, :, 5:9] = -128
    one, zero = np.float32(1), np.asarray(0, np.int8)
    case = Case(layer, x, one, zero, np.full(channels, 1e-5, np.float32), one, zero)
    made = as_float(case.model())
    assert "QLinearConv" not in ops(made)
    assert [node.op_type for node in made.graph.node].count("Conv") == 2
    np.testing.assert_array_equal(run(made, case.x), device(case))


def test_the_range_of_the_input_counts():
    """Behind a Relu the sums are half as wide, and one convolution is enough."""
    case = wide()
    model = case.model()
    node = model.graph.node[0]
    relu = helper.make_node("Relu", ["x"], ["r"])
    both = onnx.ModelProto()
    both.CopyFrom(model)
    weights = case.layer.weight.copy()
    weights[:, ::2] *= -1
    for tensor in both.graph.initializer:
        if tensor.name == "w":
            tensor.CopyFrom(numpy_helper.from_array(weights, "w"))
    plain = as_float(both)
    node.input[0] = "r"
    del both.graph.node[:]
    both.graph.node.extend([relu, node])
    with_relu = as_float(both)
    assert [n.op_type for n in plain.graph.node].count("Conv") == 3
    assert [n.op_type for n in with_relu.graph.node].count("Conv") < 3


def test_what_is_not_known_stays():
    """Other operators stay between casts: pools with indices, interpolation, integer sums."""
    net = Net(x=(1, 4, 6, 6))
    q = integers(net)
    net.op("MaxPool", q, kernel_shape=[2, 2], outputs=2, to="p")
    net.op("Relu", "p", to="r")
    net.op("Cast", "r", to="i")
    net.nodes[-1].attribute.append(helper.make_attribute("to", TensorProto.INT32))
    net.op("Add", "i", net.constant(np.int32(3)), to="y")
    model = net.output("y", "p_1", "r").model()
    left = as_float(model)
    assert {"MaxPool", "Cast", "Add"} <= ops(left)
    same(model, {"x": images(1, 4, 6, 6)})


def test_subgraphs_read_integers():
    """A branch that reads an int8 tensor from outside finds it under its name."""
    scale, zero = "s", "z"
    then = Net(prefix="a").op("DequantizeLinear", "q", scale, zero)
    other = Net(prefix="b").op("Neg", "x")
    net = Net(x=(1, 4, 6, 6))
    net.constant(np.float32(0.02), scale)
    net.constant(np.int8(0), zero)
    net.op("QuantizeLinear", "x", scale, zero, to="q").op("Neg", "x").branch(then, other)
    model = net.model()
    same(model, {"x": images(1, 4, 6, 6)})
    same(model, {"x": abs(images(1, 4, 6, 6))})


def test_watched_tensors():
    """int8 and float tensors are watched under their own names; unknown ones are left out."""
    net = Net(x=(1, 4, 6, 6))
    q = integers(net)
    net.op("Relu", q, to="r").op("DequantizeLinear", "r", "c0", "c1", to="d").op("Neg", to="y")
    model = net.output("y").model()
    same(model, {"x": images(1, 4, 6, 6)}, (q, "r", "d"))
    assert [o.name for o in as_float(model, ["r", "r", "nowhere", "y"]).graph.output] == ["y", "r"]


def test_int8_inputs():
    """int8 inputs and outputs of the model stay int8."""
    net = Net(x=(1, 4, 6, 6))
    net.op("Relu", "x", to="y")
    model = net.model()
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.elem_type = TensorProto.INT8
    made = as_float(model)
    assert [n.op_type for n in made.graph.node] == ["Cast", "Relu", "Cast"]
    same(model, {"x": (images(1, 4, 6, 6) * 100).astype(np.int8)})


def test_float_models_and_old_ones_stay():
    """Float models and models of an opset without Round stay as they are."""
    net = Net(x=(1, 4, 6, 6)).conv("x", (4, 4, 3, 3)).op("Relu")
    assert list(as_float(net.model()).graph.node) == net.nodes
    old = Net(opset=10, x=(1, 4))
    integers(old)
    assert ops(as_float(old.model())) == {"QuantizeLinear"}


def test_names_do_not_collide():
    """Names that the model uses already are not used again."""
    net = Net(x=(1, 4, 6, 6))
    q = integers(net)
    net.op("Relu", q, to="r").op("DequantizeLinear", "r", "c0", "c1", to="r/float")
    same(net.output("r", "r/float").model(), {"x": images(1, 4, 6, 6)})


def test_ranks_that_only_inference_knows():
    """The axis of scales needs a rank, which shape inference may give."""
    for axis in (1, -3):
        net = Net(x=(2, 4, 5, 5))
        scales = net.constant(np.asarray([0.5, 0.1, 0.3, 0.007], np.float32))
        zeros = net.constant(np.zeros(4, np.int8))
        net.op("Neg", "x", to="n").op("QuantizeLinear", "n", scales, zeros, axis=axis)
        model = net.op("DequantizeLinear", net.last, scales, zeros, axis=axis).model()
        assert "QuantizeLinear" not in ops(as_float(model))
        same(model, {"x": images(2, 4, 5, 5)})


def test_ranks_that_nobody_knows():
    """Behind an operator unknown to shape inference the conversion stays."""
    net = Net(x=(2, 4, 5, 5))
    scales, zeros = net.constant(np.ones(4, np.float32)), net.constant(np.zeros(4, np.int8))
    net.op("FusedGelu", "x", domain="com.microsoft.unheard", to="n")
    model = net.op("QuantizeLinear", "n", scales, zeros, axis=1, to="q").model()
    assert "QuantizeLinear" in ops(as_float(model))
