"""Simulator: float arithmetic with the same integers, layer by layer and for other operators."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuconv import executor
from npuconv.arithmetic.device import (
    IntegerConv,
    accumulate,
    by_float,
    by_shift,
    convolve,
    float_factors,
    shifts,
)
from npuconv.arithmetic.gemmlowp import by_gemmlowp, multipliers
from npuconv.evaluate.simulator import as_float
from support.builders import Net, images
from support.int8_layers import Case, needs_exact_runtime, random_case, run


def ops(model: onnx.ModelProto) -> set[str]:
    """Return the operators of a model."""
    return {node.op_type for node in model.graph.node}


def same(
    model: onnx.ModelProto,
    feeds: dict[str, np.ndarray],
    watch: tuple[str, ...] = (),
    optimized: tuple[bool, ...] = (False, True),
) -> None:
    """Assert that outputs and watched tensors are equal, with and without optimization."""
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    watched.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in watch)
    wanted = executor.Session(watched, threads=1, optimize=False).run(feeds)
    for optimize in optimized:
        made = as_float(model, watch)
        found = executor.Session(made, threads=1, optimize=optimize).run(feeds)
        assert list(found) == list(wanted)
        for name, values in wanted.items():
            assert found[name].dtype == values.dtype
            np.testing.assert_array_equal(found[name], values, name)


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


@needs_exact_runtime
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_zero_points_and_types(dtype):
    """Padding is the zero point, for both 8-bit types."""
    for seed in range(20):
        case = random_case(seed, dtype=dtype, x_zero=seed + 1, y_zero=7)
        weight = case.layer.weight.astype(dtype) if dtype is np.uint8 else case.layer.weight
        case.layer.__dict__["weight"] = weight
        same(case.model(), {"x": case.x})


@needs_exact_runtime
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


def test_a_sum_that_cannot_be_taken_apart():
    """A kernel too wide in one channel stays an integer convolution."""
    weight = np.full((1, 1, 40, 40), 127, np.int8)
    layer = IntegerConv(weight, None, [1, 1], [1, 1], [0] * 4)
    x = np.full((1, 1, 41, 41), 127, np.int8)
    one, zero = np.float32(1), np.asarray(0, np.int8)
    case = Case(layer, x, one, zero, np.full(1, 1e-6, np.float32), one, zero)
    assert "QLinearConv" in ops(as_float(case.model()))


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


def integers(net: Net, source: str = "x", step: float = 0.02, zero: int = 0) -> str:
    """Append a QuantizeLinear; return its result."""
    names = [net.constant(np.float32(step)), net.constant(np.int8(zero))]
    return net.op("QuantizeLinear", source, *names).last


PASSTHROUGH = {
    "Relu": ({}, ()),
    "Clip": ({}, (np.int8(-5), np.int8(90))),
    "MaxPool": ({"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}, ()),
    "Transpose": ({"perm": [0, 2, 3, 1]}, ()),
    "Reshape": ({}, (np.asarray([1, -1]),)),
    "Flatten": ({}, ()),
    "Pad": ({}, (np.asarray([0, 0, 1, 2, 0, 0, 0, 1]), np.int8(-7))),
    "Slice": ({}, (np.asarray([1]), np.asarray([3]), np.asarray([2]))),
    "DepthToSpace": ({"blocksize": 2}, ()),
    "SpaceToDepth": ({"blocksize": 2}, ()),
    "Gather": ({"axis": 1}, (np.asarray([2, 0]),)),
    "Tile": ({}, (np.asarray([1, 1, 2, 1]),)),
    "Expand": ({}, (np.asarray([2, 4, 6, 6]),)),
    "Identity": ({}, ()),
    "Resize": ({"mode": "nearest"}, ("", np.asarray([1, 1, 2, 2], np.float32))),
    "Squeeze": ({}, (np.asarray([0]),)),
    "Unsqueeze": ({}, (np.asarray([0]),)),
    "ReduceMax": ({"axes": [2]}, ()),
}


@pytest.mark.parametrize("op", PASSTHROUGH)
def test_passthrough(op):
    """Operators that move or compare integers do the same to their float carriers."""
    attrs, others = PASSTHROUGH[op]
    net = Net(x=(1, 4, 6, 6))
    net.op("Neg", "x", to="n")
    q = integers(net, "n")
    names = ["" if isinstance(o, str) else net.constant(o) for o in others]
    net.op(op, q, *names, to="y", **attrs)
    made = as_float(net.output("y").model())
    assert "QuantizeLinear" not in ops(made)
    assert [n.op_type for n in made.graph.node].count("Cast") == 1  # of the output
    same(net.model(), {"x": images(1, 4, 6, 6) * 3})


def test_several_inputs_and_outputs():
    """Concat, Max, Where and Split are supported."""
    pytest.importorskip("onnxruntime", "1.31", reason="no Where on int8 before")
    net = Net(x=(1, 4, 6, 6))
    a, b = integers(net), integers(net, "x", 0.05)
    net.op("Concat", a, b, axis=1, to="c").op("Max", a, b, to="m")
    net.op("Greater", "x", net.constant(0.0), to="g").op("Where", "g", a, b, to="w")
    net.op("Split", "c", net.constant(np.asarray([3, 5])), outputs=2, axis=1, to="s")
    model = net.output("c", "m", "w", "s", "s_1").model()
    assert ops(as_float(model)) & {"QuantizeLinear"} == set()
    same(model, {"x": images(1, 4, 6, 6)})


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


@pytest.mark.parametrize("axis", [1, -1, None])
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
def test_conversions(axis, kind):
    """Division and ties, saturation, a scale and zero point for each channel, and back."""
    net = Net(x=(2, 4, 5, 4))
    scales = np.asarray([0.5, 0.1, 0.3, 0.007] if axis is not None else 0.1, np.float32)
    zeros = np.asarray([0, 3, 100, 1] if axis is not None else 5, kind)
    names, attrs = (
        [net.constant(scales), net.constant(zeros)],
        {} if axis is None else {"axis": axis},
    )
    net.op("QuantizeLinear", "x", *names, to="q", **attrs)
    net.op("DequantizeLinear", "q", *names, to="y", **attrs)
    x = images(2, 4, 5, 4) * 40
    x[0] = np.rint(x[0]) * np.float32(0.05)
    x[1, :, 0] = [3e38, -3e38, np.inf, -np.inf]
    same(net.output("q", "y").model(), {"x": x})


def test_conversions_without_a_zero_point():
    """A conversion that has no zero point is uint8, as ONNX defines."""
    net = Net(x=(2, 4))
    scale = net.constant(np.float32(0.01))
    net.op("QuantizeLinear", "x", scale, to="q").op("DequantizeLinear", "q", scale, to="y")
    same(net.output("q", "y").model(), {"x": images(2, 4)})


def test_constants_are_converted_at_once():
    """Constants behind a DequantizeLinear are folded."""
    net = Net(x=(1, 3, 4, 4))
    weight = net.constant(np.arange(-6, 6, dtype=np.int8).reshape(4, 3, 1, 1))
    bias = net.constant(np.arange(4, dtype=np.int32))
    scales = net.constant(np.asarray([1, 2, 3, 4], np.float32) / 10)
    points = net.constant(np.zeros(4, np.int8))
    net.op("DequantizeLinear", weight, scales, points, axis=0, to="w")
    net.op("DequantizeLinear", bias, scales, axis=0, to="b")
    net.op("Conv", "x", "w", "b")
    model = net.model()
    assert ops(as_float(model)) == {"Conv"}
    same(model, {"x": images(1, 3, 4, 4)}, optimized=(False,))  # a float sum has no one order


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


def test_nhwc_pool():
    """NhwcMaxPool becomes a MaxPool between two Transposes."""
    net = Net(x=(1, 6, 6, 4))
    q = integers(net)
    net.op("NhwcMaxPool", q, domain="com.microsoft", kernel_shape=[2, 2], strides=[2, 2], to="y")
    model = net.output("y").model()
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT8
    same(model, {"x": images(1, 6, 6, 4)})


def test_scales_that_are_not_constant():
    """Nodes with variable scales stay."""
    net = Net(x=(1, 4, 6, 6), s=())
    net.op("QuantizeLinear", "x", "s", net.constant(np.int8(0)), to="q")
    net.op("DequantizeLinear", "q", "s", "c0", to="y")
    model = net.output("y").model()
    assert {"QuantizeLinear", "DequantizeLinear"} <= ops(as_float(model))
    same(model, {"x": images(1, 4, 6, 6), "s": np.asarray(0.1, np.float32)})


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


def test_constants_from_nodes():
    """Constant nodes count as initializers, int8 data of a Concat included."""
    net = Net(x=(1, 4, 6, 6))
    values = {"s": np.float32(0.02), "z": np.int8(0), "k": np.ones((1, 1, 6, 6), np.int8)}
    for name, value in values.items():
        net.op("Constant", to=name, value=numpy_helper.from_array(np.asarray(value)))
        del net.nodes[-1].input[:]
    net.op("QuantizeLinear", "x", "s", "z", to="q").op("Concat", "q", "k", axis=1, to="c")
    model = net.op("DequantizeLinear", "c", "s", "z", to="y").model()
    assert "QuantizeLinear" not in ops(as_float(model))
    same(model, {"x": images(1, 4, 6, 6)})


def test_blocks_and_other_types_stay():
    """Scales by block, 16-bit integers and other output types stay."""
    net = Net(opset=21, ir_version=10, x=(2, 4))
    blocks = net.constant(np.full((2, 2), 0.1, np.float32))
    net.op("QuantizeLinear", "x", blocks, net.constant(np.zeros((2, 2), np.int8)), block_size=2,
           axis=1, to="b")  # fmt: skip
    net.op("QuantizeLinear", "x", net.constant(np.float32(0.1)), net.constant(np.int16(0)), to="w")
    net.op("QuantizeLinear", "x", "c2", output_dtype=TensorProto.INT8, to="q")
    net.op("DequantizeLinear", "q", "c2", to="y")
    model = net.output("b", "w", "y").model()
    assert [n.op_type for n in as_float(model).graph.node].count("QuantizeLinear") == 2
    same(model, {"x": images(2, 4)})
