"""Ends of gradients: outputs, and tensors before an operator that passes none on."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from quantize.gradient_graphs import (
    IMAGE,
    ROWS,
    Build,
    cast,
    differentiated,
    operator,
    pool,
    resize,
    run,
    values,
)
from support.builders import Net


def around(build: Build, shape: tuple[int, ...] = IMAGE) -> onnx.ModelProto:
    """An operator between a Tanh and a Sigmoid."""
    net = Net(input=shape).op("Tanh", "input", to="x")
    return build(net).op("Sigmoid", to="y").model()


NOT_PASSED: dict[str, tuple[Build, tuple[int, ...]]] = {
    "an operator without adjoint": (operator("Sin"), IMAGE),
    "one of another domain": (operator("Gelu", domain="com.microsoft"), IMAGE),
    "Resize by no whole number": (resize(1, 1, 1.5, 1.5, mode="nearest"), IMAGE),
    "Resize to less": (resize(1, 1, 0.5, 0.5, mode="linear"), IMAGE),
    "Slice of every second": (operator("Slice", [0], [6], [2], [2]), IMAGE),
    "Slice without axes": (operator("Slice", [0], [1]), IMAGE),
    "Gather of a table": (operator("Gather", [[0, 1], [2, 3]], axis=1), IMAGE),
    "Pad by reflection": (operator("Pad", [0, 0, 1, 1, 0, 0, 1, 1], mode="reflect"), IMAGE),
    "Pad that cuts": (operator("Pad", [0, 0, -1, 0, 0, 0, 0, 0]), IMAGE),
    "AveragePool of what is not there": (
        pool("AveragePool", 3, 3, strides=[2, 2], ceil_mode=1), IMAGE),
    "Gemm of what is turned": (
        lambda net: net.op("Gemm", "x", net.random(3, 5), transA=1), ROWS),
    "MatMul of a vector": (lambda net: net.op("MatMul", "x", net.random(4)), ROWS),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT_PASSED)
def test_what_no_gradient_passes_counts_as_an_output(name: str):
    """Tensors before such an operator still have a gradient."""
    build, shape = NOT_PASSED[name]
    made, found, seed_of = differentiated(around(build, shape), "input")
    assert "x" in seed_of
    types = {value.name: value.type.tensor_type for value in made.graph.input}
    feeds = {"input": values(shape, 0)}
    for seed in seed_of.values():
        dims = [d.dim_value for d in types[seed].shape.dim]
        feeds[seed] = np.ones(dims, np.float32)
    # The operator passes nothing on, so all that arrives is from its own end.
    np.testing.assert_allclose(
        run(made, feeds)[found["input"]], 1 - np.tanh(feeds["input"]) ** 2, atol=1e-5
    )


def ends_of(net: Net, *wanted: str) -> list[str]:
    """Outputs, and what counts as one."""
    return list(differentiated(net.output().model(), *wanted)[2])


def test_outputs_are_ends_where_every_operator_passes():
    """Each once, in their order; but not one that nothing is asked of."""
    net = Net(x=IMAGE, z=IMAGE).conv("x", to="a").op("Relu", to="b").op("Neg", "z", to="c")
    assert list(differentiated(net.output("b", "c", "a").model(), "x")[2]) == ["b", "a"]


def test_what_is_no_data_is_no_end():
    """Neither the weights of an operator without adjoint, nor what only gives its shape."""
    net = Net(x=IMAGE).op("Tanh", to="t")
    net.op("Einsum", "t", net.random(4), equation="nchw,c->nhw")
    assert ends_of(net, "x", "t") == [net.last, "t"]
    net = Net(x=IMAGE).op("Tanh", to="t").op("Shape", "t", to="shape").op("Reshape", "t", "shape")
    assert ends_of(net, "x") == [net.last]


def test_numbers_of_another_type():
    """A float that becomes a double or an index is an end."""
    net = cast(Net(x=IMAGE).op("Tanh", to="x2"), "x2", TensorProto.DOUBLE).op("Sin")
    assert ends_of(cast(net, net.last, TensorProto.FLOAT), "x") == [net.last, "x2"]
    assert ends_of(Net(x=IMAGE).op("Tanh", to="t").op("ArgMax", axis=1), "x") == ["t"]


def test_weights_that_are_worked_out():
    """Tensors that make weights have an unknown effect: they are ends."""
    net = Net(x=IMAGE, w=(3, 4, 1, 1)).op("Tanh", "w", to="t").op("Conv", "x", "t")
    assert ends_of(net, "x", "w") == [net.last, "t"]
