"""Operators in the simulator: integers of TFLite and of shifts, and operators that pass on."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuconv.arithmetic.rescaling import Rescaling
from npuconv.arithmetic.whole import WholeArray
from npuconv.emit.int8_operators import int8_operators, listed_operators
from npuconv.evaluate.simulator import as_float
from npuconv.executor import Session
from npuconv.ops.operator import OPERATORS
from support.builders import Net, images
from support.int8_layers import integers, ops, same
from support.int8_operators import CASES, MADE, WIDE, Case
from support.target_files import chip


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
    rescaled = OPERATORS.get(case.op).made_at(case.scales) != case.scales[-1]
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
