"""Tests of name-nodes."""

from __future__ import annotations

from support.asserts import context, read, run_pass, same_numbers
from support.builders import Net

NAME = "name-nodes"

FIRES = [
    lambda: Net(x=(1, 4)).op("Relu", name="").op("Neg", name="").model(),
    lambda: Net(x=(1, 4)).op("Relu", name="same").op("Neg", name="same").model(),
]
# onnxruntime wants unique names.
NOT_RUNNABLE = [FIRES[1]]
SILENT = [lambda: Net(x=(1, 4)).op("Relu").op("Neg").model()]


def test_unnamed_nodes():
    """Unnamed nodes are called by operator and number."""
    proto = Net(x=(1, 4)).op("Relu", name="").op("Neg", name="").op("Relu", name="").model()
    model = read(proto)
    assert run_pass(NAME, model) == 3
    assert [n.name for n in model.nodes()] == ["Relu_0", "Neg_0", "Relu_1"]
    same_numbers(proto, model)


def test_the_first_of_a_name_keeps_it():
    """The second gets a number; the report still calls it as the user does."""
    model, ctx = read(FIRES[1]()), context()
    assert run_pass(NAME, model, ctx) == 1
    assert [n.name for n in model.nodes()] == ["same", "same_1"]
    assert [model.label(n) for n in model.nodes()] == ["same", "same"]
    (record,) = ctx.rewrites
    assert (record.before, record.after) == ("name 'same'", "a unique name")
    assert record.max_abs_difference is None


def test_a_tensor_of_that_name():
    """Names of tensors are taken too."""
    model = read(Net(x=(1, 4)).op("Relu", name="", to="Relu_0").model())
    run_pass(NAME, model)
    assert [n.name for n in model.nodes()] == ["Relu_0_1"]
