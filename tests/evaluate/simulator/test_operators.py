"""Operators in the simulator: the integers of ``arithmetic.litert``, near those of float."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from npuconv.arithmetic import litert
from npuconv.arithmetic.whole import WholeArray
from npuconv.emit.int8_operators import int8_operators
from npuconv.evaluate.simulator import as_float
from npuconv.executor import Session
from support.int8_operators import CASES


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
