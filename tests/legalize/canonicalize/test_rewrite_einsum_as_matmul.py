"""Tests of rewrite-einsum-as-matmul."""

from __future__ import annotations

import pytest

import npuconv
from support.asserts import Passes, read, refusals, run_pass, same_numbers
from support.builders import Net

NAME = "rewrite-einsum-as-matmul"
EXTENTS = {label: 2 + number for number, label in enumerate("bhijdkxy")}


def einsum(equation, extents=None, constant=False):
    sizes = {**EXTENTS, **(extents or {})}
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    shapes = [tuple(sizes[label] for label in term) for term in terms]
    net = Net(**{f"x{k}": shape for k, shape in enumerate(shapes[: 1 if constant else None])})
    names = [f"x{k}" for k in range(len(shapes))]
    if constant:
        names[1] = net.random(*shapes[1])
    return net.op("Einsum", *names, equation=equation).model()


EQUATIONS = [
    "bhid,bhjd->bhij",  # scores of an attention
    "bhij,bhjd->bhid",
    "bihd,bjhd->bhij",
    "bij,bjk->bik",
    "ij,jk",  # implicit: ik
    "kj,ik",  # implicit: ij, whose rows are those of the second operand
    "bij,bjk->bki",
    "bhid,hkd->bhik",  # relative positions
    "bhxy,hxyi->bhi",  # two axes are summed
    "bxi,byi->bxy",
    "bxyi,bji->bxyj",  # two axes are rows
    "bij,b->bij",  # no columns and no depth
    "bi,bi->b",
    "i,j->ij",
]
FIRES = [
    *(lambda equation=equation: einsum(equation) for equation in EQUATIONS),
    lambda: einsum("bij->bji"),
    lambda: einsum("bij->bij"),
    lambda: einsum("bhid,bhjd->bhij", {"b": "n", "i": "t", "j": "t"}),
    lambda: einsum("bid,dhk->bhik", constant=True),
]
SILENT = [
    lambda: einsum("bij,bjk,bkd->bid"),
    lambda: einsum("bii->bi"),  # a diagonal
    lambda: einsum("bij->bi"),  # a sum
    lambda: einsum("bij,bjk->bk"),  # sums i in one operand
    lambda: einsum("bxyi,bji->bxyj", {"x": "n"}),  # joins an open extent
]


@pytest.mark.parametrize("equation", EQUATIONS)
def test_same_numbers(equation):
    """MatMul, Transpose and Reshape compute what Einsum does."""
    proto = einsum(equation)
    model = read(proto)
    assert run_pass(NAME, model, Passes()) == 1
    assert {node.op for node in model.nodes()} <= {"MatMul", "Transpose", "Reshape"}
    same_numbers(proto, model)


def test_scores_of_an_attention_need_one_transpose():
    """The rows of the second operand are its columns in the product."""
    model = read(einsum("bhid,bhjd->bhij"))
    run_pass(NAME, model, Passes())
    assert sorted(node.op for node in model.nodes()) == ["MatMul", "Transpose"]


def test_an_open_extent_is_not_joined():
    """An open extent of a joined axis, or of the other axis of the matrix, refuses the rewrite."""
    reason = "extents of bxyi,bji that a Reshape joins are open"
    for label in "xj":
        proto = einsum("bxyi,bji->bxyj", {label: "n"})
        assert refusals(NAME, proto, Passes()) == [("einsum0", reason)]


def test_ellipsis_and_broadcast_stay():
    """Their labels are not the axes of the operands."""
    for equation, shapes in (("...ij,...jk->...ik", ((2, 3, 4), (2, 4, 5))),
                             ("bij,bjk->bik", ((1, 3, 4), (2, 4, 5)))):  # fmt: skip
        net = Net(x=shapes[0], y=shapes[1]).op("Einsum", "x", "y", equation=equation)
        assert run_pass(NAME, read(net.model()), Passes()) == 0


def test_a_projection_by_a_constant_runs_on_the_device():
    """The MatMul becomes a convolution."""
    net = Net(x=(1, 6, 8))
    net.op("Einsum", "x", net.random(8, 4), equation="bid,dk->bik")
    report = npuconv.check(net.model(), "npu-int8")
    assert ("Conv", "device") in {(node.op, node.placement) for node in report.nodes}
