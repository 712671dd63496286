"""Tests of eliminate-reshape."""

from __future__ import annotations

import pytest

from support.asserts import context, read, refusals, run_pass, same_numbers
from support.builders import Net

NAME = "eliminate-reshape"

FIRES = [
    lambda: Net(x=(1, 3, 16, 16)).reshape([1, 3, 16, 16]).op("Relu").model(),
    lambda: Net(x=(1, 3, 8, 8)).op("Relu").reshape([0, -1, 8, 8]).model(),
    lambda: Net(x=(2, 12)).op("Flatten").op("Relu").model(),
]
SILENT = [
    lambda: Net(x=(1, 3, 8, 8)).reshape([1, 8, 3, 8]).op("Relu").model(),
    lambda: Net(x=("N", 12)).op("Flatten").op("Relu").model(),
    lambda: Net(x=(1, 12)).op("Flatten").model(),
    lambda: Net(x=("N", 3)).reshape([2, 3]).op("Relu").model(),
]


@pytest.mark.parametrize("build", FIRES)
def test_what_is_left(build):
    """Only the neighbour; also at extents larger than what others are measured at."""
    proto = build()
    model, ctx = read(proto), context()
    assert run_pass(NAME, model, ctx) == 1
    assert [n.op for n in model.nodes()] == ["Relu"]
    (record,) = ctx.rewrites
    assert (record.reference, record.difference) == ("onnxruntime", 0.0)
    assert record.before.endswith("to its own shape")
    same_numbers(proto, model)


def test_it_stays_between_an_input_and_an_output():
    """An input that is an output needs a node that copies."""
    assert [node for node, _ in refusals(NAME, SILENT[2]())] == ["flatten0"]
