"""Tests of write-as-listed."""

from __future__ import annotations

import npuconv
from npuconv.config import Options
from npuconv.legalize.legal import legalize
from support.asserts import builtin
from support.builders import Net
from support.target_files import HEAD

NAME = "write-as-listed"
RKNN = builtin("rknn")  # lists Add alone


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
]
SILENT = [
    (lambda: divided(0.0), builtin("ethos-u55")),
    (lambda: Net(x=(1, 4), y=(1, 4)).op("Div", "x", "y").model(), builtin("ethos-u55")),
    (lambda: total(2), builtin("horizon-x3")),  # lists Sum itself
    (lambda: total(3), RKNN),  # would be rounded in between
    lambda: total(2),  # the target lists neither
]


def test_a_product_at_the_end_crosses_twice_only():
    """Its convolution stands between Reshapes, which the device lists."""
    net = Net(x=(1, 3, 4, 4)).conv("x", (4, 3, 4, 4)).op("Flatten")
    net.op("Gemm", net.last, net.random(4, 10))
    assert npuconv.check(net.model(), "rknn").summary.transitions == 2


def test_a_division_by_channels_is_a_listed_mul(tmp_path):
    """As a convolution, a step that could stay on the host would cross."""
    net = Net(x=(1, 4, 3, 2))
    proto = net.op("Div", "x", net.constant([[[0.5]], [[-2.0]], [[3.0]], [[4.0]]])).model()
    path = tmp_path / "chip.yaml"
    path.write_text(HEAD + "  Conv: {}\n  Mul: {}\n")
    legal = legalize(proto, Options(target=str(path)))
    assert [node.op for node in legal.model.nodes()] == ["Mul"]
