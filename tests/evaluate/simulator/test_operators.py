"""Operators in the simulator: the integers of ``arithmetic.litert``, near those of float."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from npuconv.arithmetic import litert, shifting
from npuconv.arithmetic.operators import Rescaling
from npuconv.arithmetic.whole import WholeArray
from npuconv.emit.int8_operators import int8_operators
from npuconv.evaluate.device_operators import device_operators
from npuconv.evaluate.simulator import as_float
from npuconv.executor import Session
from support.int8_operators import CASES, MADE, WIDE, Case
from support.target_files import chip


@pytest.mark.parametrize("name", CASES)
def test_the_graph_computes_what_arrays_do(name):
    case = CASES[name]
    model, feeds = case.model(), case.feeds()
    one = int8_operators(model).made["y"]
    values = [WholeArray.of({**feeds, **one.constants}[source]) for source in one.sources]
    wanted = litert.compute(one.op, one.attributes, values, one.scales).values
    found = Session(as_float(model)).run(feeds)["y"]
    assert found.dtype == np.int8
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("name", CASES)
def test_the_float_operator_is_a_step_away_at_most(name):
    """Two where a QUANTIZE follows: it rounds once more, what it reads is coarser."""
    case = CASES[name]
    ours = Session(as_float(case.model())).run(case.feeds())["y"].astype(int)
    theirs = Session(case.model("float")).run(case.feeds())["y"].astype(int)
    rescaled = litert.made_at(case.op, case.scales) != case.scales[-1]
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
SHIFTING = {n: one for n, one in CASES.items() if one.op in shifting.OPERATORS} | {"div": DIVIDED}
ROUNDINGS = ("half_away", "half_up", "half_even")


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("name", SHIFTING)
def test_a_device_that_shifts(name, rounding):
    """The graph computes what arrays do, a step from the float operator at most."""
    case = SHIFTING[name]
    model, feeds = case.model(f"shift 12 40 {rounding}"), case.feeds()
    one = int8_operators(model).made["y"]
    values = [WholeArray.of({**feeds, **one.constants}[source]) for source in one.sources]
    how = Rescaling("shift", 12, 40, rounding)
    wanted = shifting.compute(one.op, one.attributes, values, one.scales, how).values
    made = as_float(model)
    assert "op" not in {node.name for node in made.graph.node}
    found = Session(made).run(feeds)["y"]
    np.testing.assert_array_equal(found, wanted)
    theirs = Session(case.model("float")).run(feeds)["y"].astype(int)
    assert np.abs(found - theirs).max() <= 1
    (vector,) = device_operators(model, chip("", also={"operators": {"Conv": {}, case.op: {}}}))
    stored = [one.values.astype(np.int8) for one in values]
    np.testing.assert_array_equal(vector.run(stored, how), wanted)


@pytest.mark.parametrize("words", ["shift", "shift 12 40 up", "shift x 40 half_up", "shift 99 1 0"])
def test_words_that_say_no_requantization_are_float(words):
    """A file of a stranger may say anything."""
    made = as_float(CASES["softmax"].model(words))
    assert "Softmax" in [node.op_type for node in made.graph.node]


@pytest.mark.parametrize("divisor", [[6.0], [2.0, 0.0, 1.0]])
def test_a_division_that_no_factor_stands_for_stays_float(divisor):
    """A division by one number is a table, rounded once on all devices; 0 is of a stranger."""
    by = np.asarray(divisor, np.float32).reshape(-1, 1, 1)
    made = as_float(Case("Div", (WIDE, MADE), rest=[by]).model("shift 12 40 half_up"))
    assert "op" in {node.name for node in made.graph.node}
