"""Ranges of tensors that only tables read."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.arithmetic.tables import Step, chain
from npuconv.partition import make_plan
from npuconv.quantize.table_ranges import Functions, functions_of, within_tables
from support.asserts import read
from support.builders import Net
from support.target_files import chip

OPS = ("Conv", "Add", "Mul", "Clip", "HardSwish", "Sigmoid", "GlobalAveragePool")
LISTING = chip("", also={"operators": {op: {} for op in OPS}})


def net() -> Net:
    return Net(x=(1, 4, 8, 8)).conv("x", (4, 4, 1, 1), to="a")


def found(built: Net) -> Functions:
    model = read(built.conv("", (4, 4, 1, 1)).model())
    return functions_of(model, make_plan(model, LISTING))


def test_a_range_ends_where_the_function_does():
    """HardSwish is 0 below -3 and grows above; a Sigmoid is flat on both sides."""
    low, high = within_tables([chain([("HardSwish", {})])], -20, 8)
    assert low == pytest.approx(-3, abs=0.03)
    assert high == 8
    low, high = within_tables([chain([("Sigmoid", {})])], -40, 40)
    assert -9 < low < -6
    assert high == pytest.approx(-low, abs=0.1)


def test_what_is_cut_off_is_less_than_a_step():
    """The function outside of the range is that of its end, to a quarter of a step."""
    values = np.linspace(-20, 8, 1000)
    low, high = within_tables([chain([("Sigmoid", {})])], -20, 8)
    exact = 1 / (1 + np.exp(-values))
    cut = 1 / (1 + np.exp(-np.clip(values, low, high)))
    assert np.abs(exact - cut).max() <= 1 / 255 / 4


def test_the_widest_of_several_functions_counts():
    both = [chain([("HardSwish", {})]), chain([("LeakyRelu", {"alpha": 0.1})])]
    assert within_tables(both, -20, 8) == pytest.approx((-20, 8), abs=0.2)


def test_a_function_without_slope_or_with_infinities_cuts_nothing():
    assert within_tables([[Step("Mul", ("", 0.0))]], -1, 2) == (-1, 2)
    assert within_tables([chain([("Reciprocal", {})])], -1, 1) == (-1, 1)


def test_functions_of_a_tensor():
    """A HardSwish, or one that is spelled out."""
    (steps,) = found(net().op("HardSwish", to="h"))["a"]
    assert [step.op for step in steps] == ["HardSwish"]
    built = net()
    three, zero, six = (built.constant(np.float32(number)) for number in (3, 0, 6))
    built.op("Add", "a", three, to="t").op("Clip", "t", zero, six, to="c")
    (steps,) = found(built.op("Mul", "a", "c", to="m"))["a"]
    assert [step.op for step in steps] == ["Add", "Clip", "Mul"]
    assert within_tables([steps], -9, 4)[0] == pytest.approx(-3, abs=0.02)


def test_other_readers_need_the_whole_range():
    """Convolutions, operators with neighbours, the user, and products of two tensors."""
    assert found(net().conv("a", (4, 4, 1, 1), to="b").op("HardSwish", "a", to="h")) == {}
    pooled = net().op("GlobalAveragePool", "a", to="g").op("Sigmoid", "a", to="s")
    assert "a" not in found(pooled.op("Mul", "s", "g", to="m"))
    assert found(net().output("a").op("HardSwish", "a", to="h")) == {}
    assert found(net().conv("x", (4, 4, 1, 1), to="b").op("Mul", "a", "b", to="m")) == {}
