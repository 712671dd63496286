"""Tests of lower-opset."""

from __future__ import annotations

import numpy as np

from support.asserts import context, read, run_pass, same_numbers
from support.builders import Net

NAME = "lower-opset"


def image(opset: int) -> Net:
    return Net(opset=opset, ir_version=10, x=(1, 3, 8, 8))


FIRES = [
    lambda: image(22).conv().op("Relu").model(),
    lambda: image(23).conv().batchnorm(4).op("MaxPool", kernel_shape=[2, 2]).model(),
]
SILENT = [
    lambda: image(21).conv().model(),
    lambda: image(24).op("Swish", name="swish").model(),
]


def test_only_the_number_changes():
    """The nodes are the same objects with the same attributes."""
    proto = FIRES[0]()
    model, ctx = read(proto), context()
    before = [(id(n), dict(n.attrs)) for n in model.nodes()]
    assert run_pass(NAME, model, ctx) == 1
    assert model.opset == 21
    assert [(id(n), dict(n.attrs)) for n in model.nodes()] == before
    assert [(r.before, r.after) for r in ctx.rewrites] == [("opset 22", "opset 21")]
    same_numbers(proto, model)


def test_an_operator_that_is_newer():
    """A newer operator is named, and the opset stays."""
    model, ctx = read(image(24).op("Relu").op("Swish", name="swish").model()), context()
    assert run_pass(NAME, model, ctx) == 0
    assert model.opset == 24
    assert [(r.node, r.reason) for r in ctx.refusals] == [
        ("swish", "Swish of opset 24 is not in 21")
    ]


def test_axes_that_are_inputs():
    """A ReduceMax has had its axes as an attribute up to opset 17."""
    net = image(18)
    proto = net.op("ReduceMax", "x", net.constant(np.asarray([1])), name="max").model()
    model, ctx = read(proto), context(opset=17)
    assert run_pass(NAME, model, ctx) == 0
    assert [r.node for r in ctx.refusals] == ["max"]
    whole = read(image(18).op("ReduceMax", "x").model())  # over all axes it reads the same
    assert run_pass(NAME, whole, context(opset=17)) == 1


def test_the_opset_of_the_option():
    """The opset may be older or newer than the default."""
    model, ctx = read(image(17).conv().model()), context(opset=14)
    assert run_pass(NAME, model, ctx) == 1
    assert model.opset == 14
    newer = read(image(23).conv().model())
    assert run_pass(NAME, newer, context(opset=23)) == 0
    assert newer.opset == 23


def test_an_operator_of_another_domain():
    """Another domain has its own opset."""
    proto = image(22).op("Gelu", domain="com.microsoft").model()
    model = read(proto)
    assert run_pass(NAME, model) == 1
    same_numbers(proto, model)
