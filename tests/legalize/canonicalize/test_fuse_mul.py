"""Tests of fuse-mul."""

from __future__ import annotations

from support.affine_nets import COLUMN, convolved, fires, first, second, silent
from support.asserts import read, refusals, run_pass

NAME = "fuse-mul"
FIRES = fires("Mul", "Div")
SILENT = silent("Mul", "Div")


def test_no_bias_is_made():
    """A factor alone needs none."""
    model = read(FIRES[1]())
    run_pass(NAME, model)
    (conv,) = model.nodes()
    assert len(conv.inputs) == 2


def test_division_by_zero():
    """Division by zero gives infinities, as before."""
    assert refusals(NAME, second(convolved(), "Div", COLUMN - 1)) == [("it", "it divides by zero")]


def test_a_constant_divided_by_a_convolution():
    """A constant divided by a convolution is no factor, nor a near miss."""
    assert refusals(NAME, first(convolved(), "Div", COLUMN)) == []
