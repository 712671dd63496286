"""Tests of rewrite-affine-as-conv."""

from __future__ import annotations

import numpy as np
import pytest

from npuconv.config import Options
from npuconv.model import query
from support.asserts import Passes, context, read, run_pass, same_numbers
from support.builders import Net
from support.target_files import chip

NAME = "rewrite-affine-as-conv"
C = 4
X = (2, C, 5, 6)


def affine(
    op: str, shape: tuple[int, ...] = (C, 1, 1), *, x: tuple[int | str, ...] = X,
    swapped: bool = False,
) -> Net:  # fmt: skip
    """One operator with a constant of this shape, behind or in front."""
    net = Net(x=x)
    constant = net.random(*shape, low=0.5, high=2.0)
    return net.op(op, *((constant, "x") if swapped else ("x", constant)), name="node")


def chain(*parts: tuple[str, tuple[int, ...]]) -> Net:
    """Operators in a row, each with constants of the shape given."""
    net = Net(x=X)
    for op, shape in parts:
        net.op(op, net.last, net.random(*shape, low=0.5, high=2.0), name=op.lower())
    return net


ALL, EACH = (1,), (1, C, 1, 1)
FIRES = [
    *(lambda op=op: affine(op).model() for op in ("Mul", "Div", "Add", "Sub")),
    *(lambda op=op: affine(op, swapped=True).model() for op in ("Mul", "Add", "Sub")),
    lambda: affine("Mul", EACH, x=("N", C, "H", "W")).model(),
    lambda: affine("Add", (C, 1), x=(2, C, 7)).model(),
    lambda: chain(("Mul", EACH), ("Add", EACH)).model(),
    lambda: chain(("Mul", ALL), ("Sub", EACH), ("Div", EACH), ("Add", ALL)).op("Relu").model(),
    lambda: chain(("Mul", EACH), ("Add", EACH)).output("t0", "t1").model(),
]


def zero() -> Net:
    """A division by nothing."""
    net = Net(x=X)
    return net.op("Div", "x", net.constant(np.zeros((C, 1, 1))), name="node")


SILENT = [
    lambda: affine("Mul", (1,)).model(),
    lambda: chain(("Mul", ALL), ("Add", ALL)).model(),
    lambda: affine("Add", (5, 6)).model(),
    lambda: affine("Add", (C, 5, 6)).model(),
    lambda: affine("Div", swapped=True).model(),
    lambda: affine("Mul", (C,), x=(2, C)).model(),
    lambda: affine("Add", (C, 1, 1), x=(2, 1, 5, 6)).model(),
    lambda: affine("Add", (C, 1, 1), x=(2, "C", 5, 6)).model(),
    lambda: affine("Add", (1, 1, C, 1, 1)).model(),
    lambda: Net(x=X, y=X).op("Add", "x", "y").model(),
    lambda: zero().model(),
]


def ops(model: object) -> list[str]:
    return [node.op for node in model.nodes()]  # type: ignore[attr-defined]


def reasons(proto: object, ctx: Passes | None = None) -> list[str]:
    """Return the refusals of the pass."""
    model, ctx = read(proto), ctx or context()
    assert run_pass(NAME, model, ctx) == 0
    return [r.reason for r in ctx.refusals]


@pytest.mark.parametrize(
    ("op", "swapped", "weight", "bias"),
    [
        ("Mul", False, lambda c: c, None),
        ("Div", False, lambda c: 1 / c, None),
        ("Add", False, np.ones_like, lambda c: c),
        ("Sub", False, np.ones_like, lambda c: -c),
        ("Sub", True, lambda c: -np.ones_like(c), lambda c: c),
    ],
)
def test_weights_and_bias(op, swapped, weight, bias):
    """The convolution has the factors and offsets of each operator."""
    proto = affine(op, swapped=swapped).model()
    model = read(proto)
    values = query.constant_input(model.nodes()[0], 0 if swapped else 1).reshape(-1)
    assert run_pass(NAME, model) == 1
    (conv,) = model.nodes()
    made = query.constant_input(conv, 1)
    assert made.shape == (C, 1, 1, 1)
    np.testing.assert_allclose(made.reshape(-1), weight(values), rtol=1e-6)
    if bias is None:
        assert len(conv.inputs) == 2
    else:
        np.testing.assert_allclose(query.constant_input(conv, 2), bias(values), rtol=1e-6)
    same_numbers(proto, model)


def test_rank_three_gets_an_axis():
    """Put in before, and taken out behind."""
    proto = FIRES[8]()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    assert ops(model) == ["Unsqueeze", "Conv", "Squeeze"]
    same_numbers(proto, model)


def test_a_chain_is_one_convolution():
    """A chain is one convolution, scalars included."""
    proto = FIRES[10]()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    assert ops(model) == ["Conv", "Relu"]
    assert model.origin(model.nodes()[0]) == ("mul", "sub", "div", "add")
    same_numbers(proto, model)


def test_what_is_read_in_between_ends_a_chain():
    """Both are outputs of the model."""
    proto = FIRES[11]()
    model = read(proto)
    assert run_pass(NAME, model) == 2
    assert ops(model) == ["Conv", "Conv"]
    same_numbers(proto, model)


def test_both_branches_of_a_fork():
    """Neither is part of the other's chain."""
    net = Net(x=X)
    net.op("Mul", "x", net.random(C, 1, 1), to="m")
    net.op("Add", "m", net.random(C, 1, 1)).output()
    net.op("Sub", "m", net.random(C, 1, 1)).output()
    proto = net.model()
    model = read(proto)
    assert run_pass(NAME, model) == 3
    same_numbers(proto, model)


def test_a_branch_that_is_read_in_a_subgraph():
    """An Add inside an If is no part of a chain, though it alone reads the Mul."""
    net = affine("Mul")
    then, other = Net(prefix="a"), Net(prefix="b")
    then.op("Add", "t0", then.random(C, 1, 1))
    net.op("ReduceSum", "x", keepdims=0).op("Greater", net.last, net.constant(0.0))
    other.op("Neg", "x")
    net.op("If", name="if", then_branch=then.body(), else_branch=other.body())
    proto = net.model()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    assert "If" in ops(model)
    same_numbers(proto, model)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (SILENT[0], []),
        (SILENT[1], []),
        (SILENT[2], ["its constant of shape (5, 6) is not per channel"]),
        (SILENT[3], ["its constant of shape (4, 5, 6) is not per channel"]),
        (SILENT[4], []),
        (SILENT[5], []),
        (SILENT[6], ["its constant of shape (4, 1, 1) is not per channel"]),
        (SILENT[7], ["its constant of shape (4, 1, 1) is not per channel"]),
        (SILENT[9], []),
        (SILENT[10], ["its constant is zero or not finite"]),
    ],
)
def test_near_misses(build, expected):
    """Constants that vary in space or change the shape say so; scalars are none."""
    assert reasons(build()) == expected


def test_half_precision():
    """None of the device."""
    net = Net(x=X)
    net.inputs[0].type.tensor_type.elem_type = 10
    net.op("Mul", "x", net.constant(np.ones((C, 1, 1), np.float16)))
    assert reasons(net.model()) == ["it computes in float16"]


def test_what_the_device_does_not_take():
    """Its own words, once for the chain."""
    ctx = Passes(chip(group={"equals": 1}), Options())
    found = reasons(affine("Mul").model(), ctx)
    assert [text.split(",")[0] for text in found] == ["group is 4"]


def test_only_where_asked_for_and_needed():
    """The pass needs --offload and a target without the operator."""
    listed = chip(also={"operators": {"Mul": {}, "Conv": {}}})
    assert reasons(affine("Mul").model(), context(offload=False)) == []
    assert reasons(affine("Mul").model(), Passes(listed, Options())) == []
