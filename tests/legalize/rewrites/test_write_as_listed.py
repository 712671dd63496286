"""Tests of write-as-listed."""

from __future__ import annotations

import npuconv
from npuconv.config import Options
from npuconv.model import query
from support.asserts import Passes, builtin, read, refusals, run_pass
from support.builders import Net

NAME = "write-as-listed"
RKNN = builtin("rknn")  # lists Reshape and Add alone


def squeeze(shape=(1, 4, 1, 1)):
    net = Net(x=shape)
    return net.op("Squeeze", "x", net.constant([2, 3])).model()


def unsqueeze(shape=(2, 4)):
    net = Net(x=shape)
    return net.op("Unsqueeze", "x", net.constant([2, 3])).model()


def flatten(shape=(1, 4, 3, 2)):
    return Net(x=shape).op("Flatten").model()


def total(count):
    names = [f"x{number}" for number in range(count)]
    return Net(**dict.fromkeys(names, (1, 4, 3, 2))).op("Sum", *names).model()


def divided(by):
    net = Net(x=(1, 4, 3, 2))
    return net.op("Div", "x", net.constant(by)).model()


FIRES = [
    (lambda: divided(6.0), builtin("ethos-u55")),  # lists Mul
    (lambda: divided([[[0.5]], [[-2.0]], [[3.0]], [[1e3]]]), builtin("ethos-u55")),
    (lambda: total(2), RKNN),
    (squeeze, RKNN),
    (unsqueeze, RKNN),
    (flatten, RKNN),
    (lambda: squeeze(("n", 4, 1, 1)), RKNN),
    (lambda: flatten(("n", 4, 3, 2)), RKNN),
]
SILENT = [
    (lambda: divided(0.0), builtin("ethos-u55")),
    (lambda: Net(x=(1, 4), y=(1, 4)).op("Div", "x", "y").model(), builtin("ethos-u55")),
    (lambda: total(2), builtin("horizon-x3")),  # lists Sum itself
    (lambda: total(3), RKNN),  # would be rounded in between
    squeeze,  # the target lists neither
    (squeeze, builtin("ethos-u55")),  # and this one both
    (lambda: squeeze((1, "c", 1, 1)), RKNN),
]


def test_an_open_batch_stays_in_front():
    """The Reshape copies it; any other open extent is a near miss."""
    model = read(flatten(("n", 4, 3, 2)))
    assert run_pass(NAME, model, Passes(RKNN, Options())) == 1
    (node,) = model.nodes()
    shape = query.constant_input(node, 1)
    assert shape is not None
    assert (node.op, shape.tolist()) == ("Reshape", [0, 24])
    ctx = Passes(RKNN, Options())
    assert refusals(NAME, squeeze((1, "c", 1, 1)), ctx) == [("squeeze0", "an extent is not known")]


def test_a_product_at_the_end_crosses_twice_only():
    """Its convolution stands between Reshapes, which the device lists."""
    net = Net(x=(1, 3, 4, 4)).conv("x", (4, 3, 4, 4)).op("Flatten")
    net.op("Gemm", net.last, net.random(4, 10))
    assert npuconv.check(net.model(), "rknn").summary.transitions == 2
