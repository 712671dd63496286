"""Tests of rewrite-matmul-as-conv."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest

from npuconv.config import Options
from npuconv.model import query
from npuconv.model.core import Model
from npuconv.partition.costs import cost
from support.asserts import Passes, context, read, refusals, run_pass, same_numbers
from support.builders import Net
from support.target_files import chip

NAME = "rewrite-matmul-as-conv"
ROWS, K, M = 3, 6, 4


def gemm(
    addend: tuple[int, ...] | None = (M,), *, rows: int | str = ROWS, first: bool = False,
    opset: int = 17, **attrs: float,
) -> Net:  # fmt: skip
    """A Gemm whose second operand is constant, or whose first is; the result is ROWS x M."""
    shapes: list[tuple[int | str, ...]] = [(rows, K), (K, M)]
    turned = [bool(attrs.get(name)) for name in ("transA", "transB")]
    shapes = [s[::-1] if turn else s for s, turn in zip(shapes, turned, strict=True)]
    net = Net(opset=opset, x=shapes[1 if first else 0])
    weight = net.random(*shapes[0 if first else 1])
    names = [weight, "x"] if first else ["x", weight]
    if addend is not None:
        names.append(net.random(*addend))
    return net.op("Gemm", *names, name="gemm", **attrs)


def matmul(x: tuple[int | str, ...], w: tuple[int, ...], *, first: bool = False) -> Net:
    """A MatMul with constants of this shape behind, or in front."""
    net = Net(x=x)
    weight = net.random(*w)
    return net.op("MatMul", *((weight, "x") if first else ("x", weight)), name="matmul")


def added(net: Net, *shape: int) -> Net:
    """Build a product with an Add of constants of this shape behind."""
    return net.op("Add", net.last, net.random(*shape), name="add")


def addend_at_run_time(**attrs: float) -> Net:
    """A Gemm with a C that is an input of the model."""
    net = Net(x=(ROWS, K), c=(M,))
    return net.op("Gemm", "x", net.random(K, M), "c", name="gemm", **attrs)


def read_elsewhere() -> Net:
    """A product that an Add reads, and an output of the model is."""
    net = added(matmul((ROWS, K), (K, M)), M)
    return net.output("t0", "t1")


FIRES = [
    lambda: gemm().model(),
    lambda: gemm(None).model(),
    lambda: gemm(rows="N").model(),
    lambda: gemm(alpha=0.5, beta=2.0, transB=1).model(),
    lambda: gemm((), beta=3.0).model(),
    lambda: gemm((1,)).model(),
    lambda: gemm((1, M), transA=1).model(),
    lambda: gemm((ROWS, 1), beta=0.25).model(),
    lambda: gemm((ROWS, M)).model(),
    lambda: gemm((M,), beta=0.0).model(),
    lambda: gemm((ROWS, 1), first=True).model(),
    lambda: gemm((M,), first=True, transA=1, transB=1).model(),
    lambda: addend_at_run_time().model(),
    lambda: addend_at_run_time(beta=2.0).model(),
    lambda: matmul((ROWS, K), (K, M)).model(),
    lambda: matmul((2, 5, K), (K, M)).model(),
    lambda: matmul(("N", "T", K), (K, M)).model(),
    lambda: matmul((2, 3, 5, K), (K, M)).model(),
    lambda: matmul((2, 5, K), (1, K, M)).model(),
    lambda: matmul((K, 5), (M, K), first=True).model(),
    lambda: matmul((2, K, 5), (M, K), first=True).model(),
    lambda: matmul((2, 3, K, 5), (M, K), first=True).model(),
    lambda: added(matmul((2, 5, K), (K, M)), M).model(),
    lambda: added(matmul((2, K, 5), (M, K), first=True), M, 1).model(),
    lambda: added(gemm(), M).model(),
    lambda: read_elsewhere().model(),
]
SILENT = [
    lambda: Net(x=(2, 5, K), y=(2, K, 5)).op("MatMul", "x", "y").model(),
    lambda: matmul((2, 5, K), (2, K, M)).model(),
    lambda: matmul((K,), (K, M)).model(),
    lambda: matmul((2, 5, K), (K,)).model(),
    lambda: matmul((1, 1, 2, 5, K), (K, M)).model(),
    lambda: gemm(opset=11).model(),
]


def rewritten(proto: onnx.ModelProto, ctx: Passes | None = None) -> Model:
    """The model after the pass, with the same numbers."""
    model = read(proto)
    assert run_pass(NAME, model, ctx) == 1
    same_numbers(proto, model)
    return model


def ops(model: Model) -> list[str]:
    return [node.op for node in model.nodes()]


def on(target: object, **options: object) -> Passes:
    return Passes(target, Options(**options))


def test_the_rows_of_a_matrix_are_the_batch():
    """Both ends only put axes in and take them out, and the name of the output stays."""
    model = rewritten(gemm(rows="N").model())
    assert ops(model) == ["Unsqueeze", "Conv", "Squeeze"]
    (conv,) = model.nodes("Conv")
    assert query.shape(conv.inputs[0]) == ("N", K, 1, 1)
    assert query.shape(conv.outputs[0]) == ("N", M, 1, 1)
    assert [t.name for t in model.graph.outputs] == ["t0"]
    assert model.origin(conv) == ("gemm",)


@pytest.mark.parametrize(
    ("transA", "transB", "first"), list(itertools.product((0, 1), (0, 1), (False, True)))
)
@pytest.mark.parametrize("addend", [None, (), (M,), (1, M), (ROWS, 1), (ROWS, M), (1, 1)])
def test_every_form_of_gemm(addend, transA, transB, first):  # noqa: N803 - ONNX's names
    """Every combination of transposes, constant operand and addend becomes a convolution."""
    net = gemm(addend, transA=transA, transB=transB, first=first, alpha=1.5, beta=-0.5)
    model = rewritten(net.model())
    per_row, per_column = (ROWS, 1), ((M,), (1, M))
    left = addend == (ROWS, M) or addend in (per_column if first else (per_row,))
    assert ops(model).count("Add") == int(left)


def test_one_row_is_no_row_of_its_own():
    """A constant that differs by row does not for a single row."""
    net = Net(x=(1, K))
    net.op("Gemm", "x", net.random(K, M), net.random(1, M))
    assert ops(rewritten(net.model())) == ["Unsqueeze", "Conv", "Squeeze"]


def test_beta_of_zero_drops_the_addend():
    """A beta of zero leaves the addend unread."""
    (conv,) = rewritten(gemm(beta=0.0).model()).nodes("Conv")
    assert len(conv.inputs) == 2


@pytest.mark.parametrize(("beta", "left"), [(1.0, ["Add"]), (2.0, ["Add", "Mul"]), (0.0, [])])
def test_an_addend_known_at_run_time_stays_an_add(beta, left):
    """Times beta."""
    model = rewritten(addend_at_run_time(beta=beta).model())
    assert sorted(set(ops(model)) & {"Add", "Mul"}) == left


@pytest.mark.parametrize(
    ("build", "left"),
    [
        (FIRES[15], ["Transpose", "Unsqueeze", "Conv", "Squeeze", "Transpose"]),
        (FIRES[17], ["Transpose", "Conv", "Transpose"]),
        (FIRES[19], ["Unsqueeze", "Conv", "Squeeze"]),
        (FIRES[20], ["Unsqueeze", "Conv", "Squeeze"]),
        (FIRES[21], ["Transpose", "Conv", "Transpose"]),
    ],
)
def test_every_rank_of_matmul(build, left):
    """The axis that is summed over comes second, the others are height and width."""
    assert ops(rewritten(build())) == left


@pytest.mark.parametrize(
    ("net", "taken"),
    [
        (lambda: added(matmul((2, 5, K), (K, M)), M), True),
        (lambda: added(matmul((2, 5, K), (K, M)), 1, 1, 1), True),
        (lambda: added(matmul((2, 5, K), (K, M)), 5, M), False),
        (lambda: added(matmul((2, 5, K), (K, M)), 1, 1, 1, M), False),
        (lambda: added(matmul((2, M, 5), (M, M), first=True), M, 1), True),
        (lambda: added(matmul((M, K), (K, M)), M, 1), False),
        (read_elsewhere, False),
    ],
)
def test_an_add_behind_becomes_the_bias(net, taken):
    """An Add of one number per output channel, of no other shape and sole reader, is a bias."""
    model = rewritten(net().model())
    assert ("Add" not in ops(model)) == taken
    (conv,) = model.nodes("Conv")
    assert (len(conv.inputs) == 3) == taken
    assert model.origin(conv) == (("matmul", "add") if taken else ("matmul",))


def test_both_biases_add_up():
    """The biases of a Gemm and of the Add behind it are summed."""
    proto = added(gemm(beta=2.0), M).model()
    (conv,) = rewritten(proto).nodes("Conv")
    own, behind = (onnx.numpy_helper.to_array(t) for t in proto.graph.initializer[1:])
    np.testing.assert_allclose(query.constant_input(conv, 2), 2 * own + behind, rtol=1e-6)


def test_rows_become_the_width_where_the_batch_is_limited():
    """At the price of two Transposes."""
    model = rewritten(gemm().model(), on(chip(in_n={"equals": 1})))
    (conv,) = model.nodes("Conv")
    assert query.shape(conv.inputs[0]) == (1, K, 1, ROWS)
    assert ops(model) == ["Transpose", "Unsqueeze", "Conv", "Squeeze", "Transpose"]


def test_the_reason_is_that_of_the_better_form():
    """Neither is legal."""
    target = chip(in_n={"equals": 1}, in_w={"equals": 2}, in_h={"min": 900})
    ((node, reason),) = refusals(NAME, gemm().model(), on(target))
    assert (node, reason.split(",")[0]) == ("gemm", "in_n is 3")


def test_too_many_channels():
    """A rewrite of the convolution makes fewer of them."""
    assert run_pass(NAME, read(gemm().model()), on(chip(in_c={"max": 4}))) == 1


def test_only_where_asked_for_and_needed():
    """The pass needs --offload, and a target with Conv."""
    assert refusals(NAME, gemm().model(), context(offload=False)) == []
    assert refusals(NAME, gemm().model(), on(chip("Relu"))) == []


@pytest.mark.parametrize("net", [gemm(), matmul((ROWS, K), (K, M))])
def test_listed_products_are_convolutions_too(net):
    """A convolution has a scale for each output channel, and every step of quantization."""
    model = read(net.model())
    op = model.nodes()[0].op
    assert run_pass(NAME, model, on(chip(also={"operators": {op: {}, "Conv": {}}}))) == 1
    assert "Conv" in ops(model)
    assert op not in ops(model)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (SILENT[1], "its constant of shape (2, 6, 4) is a batch of matrices"),
        (SILENT[2], "one of its operands is a vector"),
        (SILENT[3], "one of its operands is a vector"),
        (SILENT[4], "its input has rank 5"),
    ],
)
def test_products_that_are_no_convolution(build, reason):
    """Other products say why."""
    assert refusals(NAME, build()) == [("matmul", reason)]


def test_two_computed_operands_are_no_near_miss():
    """Attention has no weights."""
    assert refusals(NAME, SILENT[0]()) == []


def test_an_old_opset():
    """Squeeze and Unsqueeze had their axes as attributes."""
    ((_, reason),) = refusals(NAME, SILENT[5]())
    assert reason == "opset 11 has no Unsqueeze that reads its axes"


@pytest.mark.parametrize(("dtype", "number"), [(np.float16, 10), (np.int32, 6)])
def test_other_types(dtype, number):
    """Products in other types stay off the device."""
    net = Net(x=(ROWS, K))
    net.inputs[0].type.tensor_type.elem_type = number
    net.op("MatMul", "x", net.constant(np.ones((K, M), dtype)), name="matmul")
    assert refusals(NAME, net.model()) == [("matmul", f"it computes in {np.dtype(dtype).name}")]


def test_a_rank_that_is_not_known():
    """Rows of an unknown rank are unknown."""
    net = matmul((ROWS, K), (K, M))
    net.inputs[0].type.tensor_type.ClearField("shape")
    assert [reason for _, reason in refusals(NAME, net.output("t0"))] == [
        "the rank of its input is not known"
    ]


def test_shared_weights():
    """Each product gets new weights; the shared weights are not changed."""
    net = Net(x=(ROWS, K), y=(2, K))
    weight = net.random(K, M)
    net.op("MatMul", "x", weight).output().op("Gemm", "y", weight, alpha=2.0).output()
    proto = net.model()
    model = read(proto)
    assert run_pass(NAME, model) == 2
    same_numbers(proto, model)


def test_a_product_in_a_subgraph_stays():
    """A product in a subgraph stays, and an Add there that reads a product of the model."""
    net = matmul((2, M), (M, M))
    other = Net(prefix="b").op("Neg", "t0")
    then = Net(prefix="a")
    then.op("Add", "t0", then.random(M))
    proto = net.branch(then, other).model()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    assert "Conv" in ops(model)
    same_numbers(proto, model)


def test_the_convolution_multiplies_as_often():
    """Rows of the batch are columns of a picture."""
    ctx = context()
    model = rewritten(matmul((2, 5, K), (K, M)).model(), ctx)
    (record,) = ctx.rewrites
    assert record.before == "MatMul"
    assert record.after == "Conv 1x1, 6 -> 4 channels with Transpose, Unsqueeze, Squeeze"
    assert cost(model.nodes()).macs == 2 * 5 * K * M
