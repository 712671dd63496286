"""Simulator: float convolutions and int64 kernels with the integers of the device."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuconv.arithmetic.device import float_factors, shifts
from npuconv.arithmetic.gemmlowp import multipliers
from npuconv.arithmetic.rescaling import Rescaling
from npuconv.arithmetic.whole import WholeArray
from npuconv.emit.int8_operators import int8_operators, listed_operators
from npuconv.evaluate.simulator import as_float
from npuconv.executor import Session
from npuconv.ops.operator import OPERATORS
from support.builders import Net, images
from support.int8_layers import Case as Layer
from support.int8_layers import ops, random_case, run, same
from support.int8_operators import CASES, MADE, WIDE, Case
from support.integer_conv import IntegerConv, accumulate, by_float, by_gemmlowp, by_shift, convolve
from support.target_files import chip


def device(case: Layer) -> np.ndarray:
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


POWERS = np.int64(1) << np.arange(62)
NUMBERS = np.concatenate(
    [POWERS, -POWERS, POWERS - 1, np.random.default_rng(0).integers(-(2**62), 2**62, 500)]
)


@pytest.mark.parametrize(
    ("op", "operands", "wanted"),
    [
        ("Clip", (-128, 127), np.clip),
        ("Clip", (-(2**40), 2**33), np.clip),
        ("Sign", (), np.sign),
        ("Add", (NUMBERS[::-1],), np.add),
        ("Mul", (NUMBERS[::-1],), np.multiply),
        ("Div", (3 * 2**20,), lambda x, by: np.sign(x) * (np.abs(x) // by)),
        ("ReduceMax", ([0],), lambda x, _: x.max(keepdims=True)),
    ],
)
def test_whole_numbers_of_the_runtime(op, operands, wanted):
    """Kernels of int64 are exact up to 2**62; those of onnxruntime 1.31 are not."""
    arrays = [NUMBERS, *(np.asarray(operand, np.int64) for operand in operands)]
    types = [helper.make_tensor_value_info(f"x{k}", 7, a.shape) for k, a in enumerate(arrays)]
    node = helper.make_node(op, [t.name for t in types], ["y"])
    graph = helper.make_graph([node], op, types, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    found = Session(model).run({f"x{k}": array for k, array in enumerate(arrays)})["y"]
    np.testing.assert_array_equal(found, wanted(*arrays))


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


def wide(group: int = 1, bias: int = 1) -> Layer:
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
    return Layer(layer, x, one, np.asarray(0, np.int8), scales, one, np.asarray(0, np.int8))


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
    case = Layer(layer, x, one, zero, np.full(channels, 1e-5, np.float32), one, zero)
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


def quantized() -> Net:
    """Return the beginning of a model: int8 values ``q`` of the input."""
    net = Net(x=(1, 4, 6, 6))
    names = [net.constant(np.float32(0.02), "s"), net.constant(np.int8(0), "z")]
    return net.op("QuantizeLinear", "x", *names, to="q")


def convolved(net: Net, source: str = "q", result: str = "c") -> Net:
    """Append a QLinearConv of 4 channels to 4."""
    weight = np.random.default_rng(1).integers(-127, 128, (4, 4, 3, 3)).astype(np.int8)
    w, scale = net.constant(weight), net.constant(np.float32(0.01))
    parameters = ["s", "z", w, scale, "z", "s", "z"]
    return net.op("QLinearConv", source, *parameters, pads=[1, 1, 1, 1], to=result)


def test_other_operators_stay():
    """Conversions, and operators that move or compare integers, run on int8 as written."""
    net = convolved(quantized()).op("Transpose", "c", perm=[0, 1, 3, 2], to="p")
    net.op("Relu", "p", to="r").op("Cast", "r", to="i")
    net.nodes[-1].attribute.append(helper.make_attribute("to", TensorProto.INT32))
    net.op("Add", "i", net.constant(np.int32(3)), to="y")
    model = net.output("y", "r").model()
    written = [node for node in net.nodes if node.op_type != "QLinearConv"]
    assert [node for node in as_float(model).graph.node if node in written] == written
    same(model, {"x": images(1, 4, 6, 6)})


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("ceil_mode", [0, 1])
def test_pools(dtype, ceil_mode):
    """The largest integer of each window, and its place, are those of the integer kernel."""
    kind, attrs = helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        helper.make_node(
            "MaxPool", ["q"], ["y", "places"], kernel_shape=[3, 3], strides=[2, 2],
            ceil_mode=ceil_mode, **attrs,
        ),
    ]  # fmt: skip
    constants = [
        numpy_helper.from_array(np.float32(0.25), "scale"),
        numpy_helper.from_array(np.asarray(3, dtype), "zero"),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 8, 8]),
        helper.make_tensor_value_info("y", kind, None),
        helper.make_tensor_value_info("places", TensorProto.INT64, None),
    ]
    graph = helper.make_graph(nodes, "pool", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    x = {"x": np.random.default_rng(0).normal(0, 20, (1, 2, 8, 8)).astype(np.float32)}
    made = as_float(model, ["q"])
    assert {"Cast", "MaxPool"} <= ops(made)
    wanted, found = Session(model).run(x), Session(made).run(x)
    for name, values in wanted.items():
        assert found[name].dtype == values.dtype
        np.testing.assert_array_equal(found[name], values)


def test_subgraphs_read_integers():
    """A branch that reads the result of a convolution finds it under its name."""
    then = Net(prefix="a").op("DequantizeLinear", "c", "s", "z")
    other = Net(prefix="b").op("Neg", "x")
    net = convolved(quantized()).op("Neg", "x").branch(then, other)
    model = net.model()
    same(model, {"x": images(1, 4, 6, 6)})
    same(model, {"x": abs(images(1, 4, 6, 6))})


def test_watched_tensors():
    """int8 and float tensors are watched under their own names; unknown ones are left out."""
    net = convolved(quantized()).op("Relu", "c", to="r")
    net.op("DequantizeLinear", "r", "s", "z", to="d").op("Neg", to="y")
    model = net.output("y").model()
    same(model, {"x": images(1, 4, 6, 6)}, ("q", "c", "r", "d"))
    assert [o.name for o in as_float(model, ["r", "r", "nowhere", "y"]).graph.output] == ["y", "r"]


def test_float_models_and_old_ones_stay():
    """Float models and models of an opset whose Clip has attributes stay as they are."""
    net = Net(x=(1, 4, 6, 6)).conv("x", (4, 4, 3, 3)).op("Relu")
    assert list(as_float(net.model()).graph.node) == net.nodes
    model = random_case(0).model()
    model.opset_import[0].version = 10
    assert ops(as_float(model)) == {"QLinearConv"}


def test_names_do_not_collide():
    """Names that the model uses already are not used again."""
    net = convolved(quantized()).op("DequantizeLinear", "c", "s", "z", to="c/sum")
    net.op("Neg", "c/sum", to="c/centred")
    same(net.output("c/sum", "c/centred").model(), {"x": images(1, 4, 6, 6)})


def test_constants_from_nodes():
    """Constant nodes count as initializers."""
    net = convolved(quantized())
    net.op("Constant", to="k", value=numpy_helper.from_array(np.asarray(0.02, np.float32)))
    del net.nodes[-1].input[:]
    net.nodes.insert(0, net.nodes.pop())
    net.nodes[-1].input[1] = "k"
    model = net.output("c").model()
    assert "QLinearConv" not in ops(as_float(model))
    same(model, {"x": images(1, 4, 6, 6)})


def test_variable_parameters():
    """A convolution whose scale is not constant stays."""
    net = Net(x=(1, 4, 6, 6), s=())
    net.op("QuantizeLinear", "x", "s", net.constant(np.int8(0), "z"), to="q")
    model = convolved(net).output("c").model()
    assert "QLinearConv" in ops(as_float(model))
    same(model, {"x": images(1, 4, 6, 6), "s": np.asarray(0.1, np.float32)})


@pytest.mark.parametrize(("kind", "words"), [("float", ""), ("shift", "shift 16 40 half_up")])
def test_wide_sums_in_integers(kind, words):
    """Sums beyond the integers of float32 are rounded to float32 by float factors alone."""
    case = wide(bias=2**30 + 1)
    model = case.model()
    model.metadata_props.add(key="npuconv.requantize", value=words)
    wanted = device(case)
    if kind == "shift":
        by = shifts(float_factors(case.x_scale, case.w_scales, case.y_scale), bits=16, max_shift=40)
        wanted = convolve(
            case.layer, case.x, lambda total: by_shift(total, by.multiplier, by.shift, case.y_zero,
                                                       "half_up"),
        )  # fmt: skip
    np.testing.assert_array_equal(run(as_float(model), case.x), wanted)


@pytest.mark.parametrize("name", CASES)
def test_the_graph_computes_what_arrays_do(name):
    case = CASES[name]
    model, feeds = case.model(), case.feeds()
    one = int8_operators(model).by_result["y"]
    values = [WholeArray.from_array({**feeds, **one.constants}[source]) for source in one.sources]
    wanted = one.compute(values, Rescaling("gemmlowp")).values
    found = Session(as_float(model)).run(feeds)["y"]
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", CASES)
def test_the_float_operator_is_a_step_away_at_most(name):
    """Two where a QUANTIZE follows: it rounds once more, what it reads is coarser."""
    case = CASES[name]
    ours = Session(as_float(case.model())).run(case.feeds())["y"].astype(int)
    theirs = Session(case.model("float")).run(case.feeds())["y"].astype(int)
    rescaled = OPERATORS.get(case.op).tflite_result_scale(case.scales) != case.scales[-1]
    assert np.abs(ours - theirs).max() <= 1 + int(rescaled)


def test_other_requantizations_keep_the_float_operator():
    """Only gemmlowp is TFLite's; elsewhere the conversions are written out."""
    made = as_float(CASES["sigmoid"].model("float"))
    assert "Sigmoid" in [node.op_type for node in made.graph.node]


def test_what_is_watched_within_an_operator_is_made():
    """The dequantized input of an operator, though nothing else reads it."""
    case = CASES["sigmoid"]
    found = Session(as_float(case.model(), ["d0"])).run(case.feeds(), ["y", "d0"])
    at = case.scales[0]
    wanted = (case.feeds()["x0"].astype(np.float32) - at.zero) * np.float32(at.scale)
    np.testing.assert_array_equal(found["d0"], wanted)


def test_extents_that_are_not_known_keep_the_float_operator():
    """A pool of unknown height has an unknown number of values to divide by."""
    model = onnx.ModelProto()
    model.CopyFrom(CASES["global-average-pool"].model())
    shape = [1, 3, "H", 6]
    model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x0", 3, shape))
    made = as_float(model)
    assert "GlobalAveragePool" in [node.op_type for node in made.graph.node]
    Session(made).run(CASES["global-average-pool"].feeds())


DIVISORS = np.asarray([[[0.5]], [[-3.0]], [[6.0]]], np.float32)
DIVIDED = Case("Div", (WIDE, MADE), rest=[DIVISORS])  # TFLite has none in int8
GAIN = np.random.default_rng(3).normal(size=6).astype(np.float32)
NORMALIZED = Case("LayerNormalization", (WIDE, MADE), {"axis": -1}, [GAIN, GAIN / 2])
BARE = Case("LayerNormalization", (WIDE, MADE), {"axis": 2}, [np.tile(GAIN, (8, 1))])
SHIFTING = {n: one for n, one in CASES.items() if not OPERATORS.get(one.op).is_table}
SHIFTING |= {"div": DIVIDED, "normalization": NORMALIZED, "normalization-no-bias": BARE}
ROUNDINGS = ("half_away", "half_up", "half_even")


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", SHIFTING)
def test_a_device_that_shifts(name, rounding):
    """The graph computes what arrays do, a step from the float operator at most."""
    case = SHIFTING[name]
    model, feeds = case.model(f"shift 12 40 {rounding}"), case.feeds()
    one = int8_operators(model).by_result["y"]
    values = [WholeArray.from_array({**feeds, **one.constants}[source]) for source in one.sources]
    how = Rescaling("shift", 12, 40, rounding)
    wanted = one.compute(values, how).values
    made = as_float(model)
    assert "op" not in {node.name for node in made.graph.node}
    found = Session(made).run(feeds)["y"]
    np.testing.assert_array_equal(found, wanted)
    theirs = Session(case.model("float")).run(feeds)["y"].astype(int)
    assert np.abs(found - theirs).max() <= 1
    (vector,) = listed_operators(model, chip("", also={"operators": {"Conv": {}, case.op: {}}}))
    np.testing.assert_array_equal(vector.compute(values, how).values, wanted)


@pytest.mark.parametrize("words", ["shift", "shift 12 40 up", "shift x 40 half_up", "shift 99 1 0"])
def test_words_that_say_no_requantization_are_float(words):
    """A file of a stranger may say anything."""
    made = as_float(CASES["softmax"].model(words))
    assert "Softmax" in [node.op_type for node in made.graph.node]


def test_an_extent_that_is_normalized_and_not_known_keeps_the_float_operator():
    """Values along other axes are not counted."""
    for shape, there in (([1, 3, 8, "W"], True), ([1, 3, "H", 6], False)):
        model = NORMALIZED.model("shift 12 40 half_up")
        model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x0", 3, shape))
        made = as_float(model)
        assert ("LayerNormalization" in [node.op_type for node in made.graph.node]) == there


@pytest.mark.parametrize("divisor", [[6.0], [2.0, 0.0, 1.0]])
def test_a_division_that_no_factor_stands_for_stays_float(divisor):
    """A division by one number is a table, rounded once on all devices; 0 is of a stranger."""
    by = np.asarray(divisor, np.float32).reshape(-1, 1, 1)
    made = as_float(Case("Div", (WIDE, MADE), rest=[by]).model("shift 12 40 half_up"))
    assert "op" in {node.name for node in made.graph.node}
