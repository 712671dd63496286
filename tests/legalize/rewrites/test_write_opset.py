"""Tests of write-opset."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import npuconv
from support.asserts import context, read, run_pass, same_numbers
from support.builders import Net

NAME = "write-opset"
X = (1, 4, 8, 8)


def image(opset: int) -> Net:
    return Net(opset=opset, x=X)


def reduced(opset: int, op: str = "ReduceMean") -> Net:
    """Axes as an attribute, which became an input with opset 18."""
    return image(opset).conv(weight=(4, 4, 3, 3)).op(op, axes=[2], name="reduce")


FIRES = [lambda: image(14).conv(weight=(4, 4, 3, 3)).model(), lambda: reduced(17).model()]
SILENT = [
    lambda: image(21).conv(weight=(4, 4, 3, 3)).model(),
    lambda: image(13).op("Relu").model(),  # is for raise-opset
]


@pytest.mark.parametrize("op", ["ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2"])
def test_axes_become_an_input(op):
    """A constant beside the operator, and no further node."""
    proto = reduced(17, op).model()
    model = read(proto)
    assert run_pass(NAME, model) == 2
    assert model.opset == 21
    (node,) = model.nodes(op)
    assert "axes" not in node.attrs
    assert node.inputs[1].values.tolist() == [2]
    assert not model.nodes("Constant")
    same_numbers(proto, model)


def test_the_option_says_which():
    """No further than asked."""
    model = read(reduced(14).model())
    assert run_pass(NAME, model, context(opset=17)) == 1
    assert model.opset == 17


@pytest.mark.parametrize("form", ["qoperator", "qdq", "weights", "float"])
@pytest.mark.parametrize(("opset", "ir"), [(14, 8), (19, 9), (21, 10), (26, 13)])
def test_every_form_is_of_that_opset(form, opset, ir):
    """The IR version fits the opset, and the file passes ONNX's checker."""
    net = image(17).conv(weight=(4, 4, 3, 3)).op("Relu").op("MaxPool", kernel_shape=[2, 2])
    calibration = {"x": np.random.default_rng(0).random((4, *X[1:]), np.float32)}
    data = calibration if form in ("qoperator", "qdq") else None
    made = npuconv.convert(net.model(), calibration=data, format=form, opset=opset).model
    assert [(o.domain, o.version) for o in made.opset_import] == [("", opset)]
    assert made.ir_version == ir
    onnx.checker.check_model(made, full_check=True)
